package io.kop;

import io.kop.control.Code;
import io.netty.buffer.ByteBuf;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.pulsar.broker.service.Topic.PublishContext;
import org.apache.pulsar.common.api.proto.BrokerEntryMetadata;
import org.apache.pulsar.common.protocol.Commands;

/** One append on its way: learns the entry's index and answers the native half once. */
final class Append implements PublishContext {
    private final long ctx;
    private final String producer;
    private final long sequence;
    private final int messages;
    private final int length;
    private final boolean isMarker;
    private final AtomicBoolean answered = new AtomicBoolean();
    private volatile boolean isHandedOver;
    private long index = -1;

    Append(long ctx, String producer, long sequence, int messages, int length, boolean isMarker) {
        this.ctx = ctx;
        this.producer = producer;
        this.sequence = sequence;
        this.messages = messages;
        this.length = length;
        this.isMarker = isMarker;
    }

    /** The topic has it now: what fails from here on may have been written all the same. */
    void handedOver() {
        isHandedOver = true;
    }

    @Override
    public String getProducerName() {
        return producer;
    }

    @Override
    public long getSequenceId() {
        return sequence;
    }

    @Override
    public long getHighestSequenceId() {
        return sequence;
    }

    @Override
    public long getNumberOfMessages() {
        return messages;
    }

    /** Later versions ask for it. */
    public long getMsgSize() {
        return length;
    }

    @Override
    public boolean isMarkerMessage() {
        return isMarker;
    }

    @Override
    public void setMetadataFromEntryData(ByteBuf entry) {
        BrokerEntryMetadata metadata = Commands.peekBrokerEntryMetadataIfExist(entry);
        if (metadata != null && metadata.hasIndex()) {
            index = metadata.getIndex();
        }
    }

    @Override
    public void completed(Exception failure, long ledger, long entry) {
        if (!answered.compareAndSet(false, true)) {
            return;
        }
        if (failure != null) {
            Native.failed(ctx, code(failure), String.valueOf(failure.getMessage()));
        } else if (ledger < 0) {
            Native.failed(ctx, Code.UNKNOWN_OUTCOME, "the broker's deduplication took the entry for a repetition");
        } else {
            Native.appended(ctx, ledger, entry, index);
        }
    }

    /** Nothing was handed to the topic. */
    void refused(Throwable failure) {
        if (answered.compareAndSet(false, true)) {
            Native.failed(ctx, Code.REFUSED, String.valueOf(failure));
        }
    }

    /** What the topic refuses within the call was not written; of what fails later nobody knows. */
    private int code(Exception failure) {
        switch (failure.getClass().getSimpleName()) {
            case "TopicTerminatedException":
                return Code.REFUSED;
            case "NotAllowedException":
                return isHandedOver ? Code.UNKNOWN_OUTCOME : Code.TOO_LARGE;
            default:
                break;
        }
        if (isHandedOver) {
            return Code.UNKNOWN_OUTCOME;
        }
        switch (failure.getClass().getSimpleName()) {
            case "TopicFencedException":
            case "TopicClosedException":
            case "TopicMigratedException":
            case "ServiceUnitNotReadyException":
                return Code.HANDLE_CLOSED;
            default:
                return Code.REFUSED;
        }
    }
}
