package io.kop;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Lines of the native half in the broker's log. Levels: 1 error, 2 warn, 3 info, 4 debug, 5 trace. */
final class Log {
    private static final Logger ROOT = LoggerFactory.getLogger("io.kop");

    private Log() {
    }

    /** The most detailed level that is kept. */
    static int level() {
        return ROOT.isTraceEnabled() ? 5 : ROOT.isDebugEnabled() ? 4 : ROOT.isInfoEnabled() ? 3 : ROOT.isWarnEnabled() ? 2 : 1;
    }

    /** Writes a line; {@code module} is a Rust path, and becomes the logger's name. */
    static void line(int level, String module, String message) {
        Logger logger = LoggerFactory.getLogger("io.kop." + module.replace("::", "."));
        switch (level) {
            case 1:
                logger.error(message);
                break;
            case 2:
                logger.warn(message);
                break;
            case 3:
                logger.info(message);
                break;
            case 4:
                logger.debug(message);
                break;
            default:
                logger.trace(message);
                break;
        }
    }
}
