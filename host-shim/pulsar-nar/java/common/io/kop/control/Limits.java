package io.kop.control;

/** The bounds of what the control services keep and do at once. */
final class Limits {
    /** Names of partitions that are remembered from lookups; beyond it everything that the plugin keeps is called stale. */
    static final int MAX_KEPT_LOOKUPS = 200_000;
    /** Namespaces whose bundles are kept in order. */
    static final int MAX_KEPT_NAMESPACES = 1_000;
    /** Names in one event; longer lists are sent in pieces. */
    static final int MAX_NAMES_PER_EVENT = 10_000;
    /** Reads of the metadata store under way at once for one request. */
    static final int MAX_READS_AT_ONCE = 256;
    /** Topics whose second copy is known to be right. */
    static final int MAX_KNOWN_RECORDS = 100_000;
    /** Second copies waiting to be written or removed; what does not fit is written when the topic is next looked at. */
    static final int MAX_WAITING_RECORDS = 10_000;
    /** Tries of a change that others change too. */
    static final int MAX_TRIES = 8;
    /** Paths that are watched. */
    static final int MAX_WATCHED_PATHS = 1_024;
    /** Length of a path, and of a topic's name. */
    static final int MAX_NAME_LENGTH = 1_024;
    /** Bytes of a value; a ZooKeeper server takes 1 MiB with everything around it. */
    static final int MAX_VALUE_BYTES = 1_000_000;
    /** Identities that are remembered; the one unused for longest goes first. */
    static final int MAX_SESSIONS = 100_000;
    /** Namespaces of which a warning was logged. */
    static final int MAX_WARNED_NAMESPACES = 10_000;
    /** How long a lookup of a bundle may take. */
    static final long LOOKUP_TIMEOUT_MS = 30_000;
    /** How long a watch waits for what was written before it to be told. */
    static final long FENCE_TIMEOUT_MS = 5_000;

    /** How long the cluster's registration is waited for, how often it is looked for, and how long what follows it takes. */
    static final long CLUSTER_TIMEOUT_MS = 20_000;
    static final long CLUSTER_LOOK_AGAIN_MS = 100;
    static final long CLUSTER_SETTLES_MS = 1_000;
    /** Threads on which operations begin, and operations that wait for one. */
    static final int THREADS = 4;
    static final int MAX_WAITING_OPERATIONS = 10_000;

    private Limits() {
    }
}
