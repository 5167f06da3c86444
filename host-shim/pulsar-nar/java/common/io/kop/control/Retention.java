package io.kop.control;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.common.policies.data.RetentionPolicies;

/** How long data is kept: milliseconds and bytes, and what Pulsar makes of them. */
final class Retention {
    private static final int NO_LIMIT = -1;
    private static final long MIB = 1L << 20;
    private static final ObjectMapper JSON = new ObjectMapper();

    private Retention() {
    }

    /** Checks a limit that may be absent (null), −1 for none, or positive. */
    static Long checked(Long limit, String what) {
        if (limit != null && limit < NO_LIMIT) {
            throw new Refusal(Code.INVALID_ARGUMENT, limit + " is no " + what);
        }
        return limit;
    }

    /** Policies with new limits where they are given; both are rounded up, since 0 would mean to keep nothing. */
    static RetentionPolicies over(RetentionPolicies now, Long retentionMs, Long retentionBytes) {
        int minutes = retentionMs == null
            ? now == null ? NO_LIMIT : now.getRetentionTimeInMinutes()
            : roundedUp(retentionMs, TimeUnit.MINUTES.toMillis(1));
        long megabytes = retentionBytes == null
            ? now == null ? NO_LIMIT : now.getRetentionSizeInMB()
            : roundedUp(retentionBytes, MIB);
        return of(minutes, megabytes);
    }

    /** Policies of whole minutes and MiB. Versions differ in the type of the size, so that no constructor fits all. */
    static RetentionPolicies of(int minutes, long megabytes) {
        return JSON.convertValue(
            Map.of("retentionTimeInMinutes", minutes, "retentionSizeInMB", megabytes), RetentionPolicies.class);
    }

    private static int roundedUp(long value, long unit) {
        if (value < 0) {
            return NO_LIMIT;
        }
        long units = Math.max(1, value / unit + (value % unit == 0 ? 0 : 1));
        return units > Integer.MAX_VALUE ? NO_LIMIT : (int) units;
    }

    /** Whether {@code kept} holds data for at least as long as {@code asked}. */
    static boolean covers(RetentionPolicies kept, RetentionPolicies asked) {
        return kept != null
            && covers(kept.getRetentionTimeInMinutes(), asked.getRetentionTimeInMinutes())
            && covers(kept.getRetentionSizeInMB(), asked.getRetentionSizeInMB());
    }

    private static boolean covers(long kept, long asked) {
        return kept == NO_LIMIT || asked != NO_LIMIT && kept >= asked;
    }

    static boolean equal(RetentionPolicies one, RetentionPolicies other) {
        return one != null && other != null
            && one.getRetentionTimeInMinutes() == other.getRetentionTimeInMinutes()
            && one.getRetentionSizeInMB() == other.getRetentionSizeInMB();
    }

    /** For people, and as options of {@code pulsar-admin namespaces set-retention}. */
    static String options(RetentionPolicies policies) {
        int minutes = policies.getRetentionTimeInMinutes();
        long megabytes = policies.getRetentionSizeInMB();
        return "--time " + (minutes < 0 ? "-1" : minutes + "m") + " --size " + (megabytes < 0 ? "-1" : megabytes + "M");
    }
}
