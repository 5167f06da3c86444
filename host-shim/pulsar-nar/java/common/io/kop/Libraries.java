package io.kop;

import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/** The native libraries of the NAR: those for the processor and the C library that this broker runs on. */
final class Libraries {
    private static final String PLUGIN = "kop_handler";
    private static final String BRIDGE = "kop_pulsar";

    private final Path folder;
    private final String system;

    Libraries() {
        folder = folder();
        system = processor() + "-" + (isMusl() ? "musl" : "gnu");
    }

    /** Where the NAR was unpacked: the libraries lie beside the jar of these classes. */
    private static Path folder() {
        try {
            Path jar = Paths.get(Libraries.class.getProtectionDomain().getCodeSource().getLocation().toURI());
            return jar.resolveSibling("native").toAbsolutePath();
        } catch (URISyntaxException wrong) {
            throw new IllegalStateException("the NAR was unpacked to a place that is no file: " + wrong.getMessage(), wrong);
        }
    }

    private static String processor() {
        String name = System.getProperty("os.arch");
        return name.equals("amd64") ? "x86_64" : name.equals("arm64") ? "aarch64" : name;
    }

    /** Which C library this very process uses. */
    private static boolean isMusl() {
        try {
            String maps = new String(Files.readAllBytes(Paths.get("/proc/self/maps")), java.nio.charset.StandardCharsets.ISO_8859_1);
            return maps.contains("/ld-musl-") || maps.contains("/libc.musl-");
        } catch (IOException unknown) {
            return false;
        }
    }

    /** Loads the bridge. */
    void load() {
        System.load(file(BRIDGE).toString());
    }

    private Path file(String library) {
        Path file = folder.resolve("lib" + library + "-" + system + ".so");
        if (!Files.isRegularFile(file)) {
            throw new IllegalStateException("messagingProtocols=kafka: this NAR has no library for " + system
                + "; build one with cargo xtask nar --arch " + processor());
        }
        return file;
    }

    /** The plugin: the one in the protocols directory if there is one, else the NAR's own. */
    Path plugin(String protocolHandlerDirectory) {
        Path own = Paths.get(protocolHandlerDirectory, "lib" + PLUGIN + ".so");
        return Files.isRegularFile(own) ? own.toAbsolutePath() : file(PLUGIN);
    }
}
