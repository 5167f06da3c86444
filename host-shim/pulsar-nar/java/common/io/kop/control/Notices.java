package io.kop.control;

import java.util.List;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.metadata.api.Notification;
import org.apache.pulsar.metadata.api.NotificationType;
import org.apache.pulsar.metadata.api.extended.SessionEvent;

/** What the metadata stores tell, sorted: topics, brokers, watched values. It runs on their threads and never blocks. */
final class Notices {
    private final Context context;
    private final TopicStore store;
    private final TopicRecords records;
    private final Brokers brokers;
    private final Ownership ownership;
    private final Watches watches;
    private volatile boolean ended;

    Notices(Context context, TopicStore store, TopicRecords records, Brokers brokers, Ownership ownership, Watches watches) {
        this.context = context;
        this.store = store;
        this.records = records;
        this.brokers = brokers;
        this.ownership = ownership;
        this.watches = watches;
    }

    /** Listens from now on; stores have no way to stop listening but to ignore what comes. */
    void start() {
        context.local().registerListener(this::local);
        context.local().registerSessionListener(this::session);
        if (context.shared() != context.local()) {
            context.shared().registerListener(this::shared);
        }
    }

    void end() {
        ended = true;
    }

    private void local(Notification notification) {
        String path = notification.getPath();
        if (ended || notification.getType() == NotificationType.ChildrenChanged) {
            return;
        }
        watches.notified(path, notification.getType());
        if (path.startsWith(Brokers.ROOT + "/")) {
            brokers.changed();
        } else if (path.startsWith(Names.MANAGED_LEDGERS + "/") && !Names.isPartition(path)) {
            changed(Names.topicAt(Names.MANAGED_LEDGERS, path), notification.getType());
        } else if (context.shared() == context.local()) {
            shared(notification);
        }
    }

    private void shared(Notification notification) {
        if (ended || notification.getType() == NotificationType.ChildrenChanged) {
            return;
        }
        if (notification.getPath().startsWith(Names.PARTITIONED_TOPICS + "/")) {
            changed(Names.topicAt(Names.PARTITIONED_TOPICS, notification.getPath()), notification.getType());
        }
    }

    private void changed(String topic, NotificationType type) {
        if (topic == null) {
            return;
        }
        if (type == NotificationType.Deleted) {
            TopicName name = TopicName.get(topic);
            records.removeInBackground(topic, () -> store.exists(name));
        }
        context.events.send(Events.TOPICS_CHANGED, new Out().texts(List.of(topic)).toBytes());
    }

    /** After a time without the store, anything may have changed. */
    private void session(SessionEvent event) {
        if (!ended && (event == SessionEvent.Reconnected || event == SessionEvent.SessionReestablished)) {
            ownership.forgetAll();
            context.events.send(Events.TOPICS_CHANGED, new Out().texts(List.of()).toBytes());
            brokers.changed();
        }
    }
}
