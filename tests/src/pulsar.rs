//! Real Pulsar brokers under test, with our NAR in their `protocols/` folder: which release, the file, the settings.
//!
//! The settings are those that the project's guide gives to an operator; what a test machine needs beyond them (ports,
//! sizes, quick storage) is kept apart. It must not know what a test wants of the broker.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use kop_fetch::java::Jdk;
use kop_fetch::pulsar::Release;

use crate::broker::BUILT;
use crate::process::run;
use crate::skip::flag;
use crate::tools;

pub mod admin;
pub mod cluster;
pub mod jvm;
pub mod standalone;

/// `KOP_TEST_HOST=pulsar-4.0.0` runs the tests inside that release of Pulsar.
pub const HOST: &str = "KOP_TEST_HOST";
/// `KOP_TEST_JDK=25` runs Pulsar on that Java.
pub const JDK: &str = "KOP_TEST_JDK";
/// Names a NAR to test in place of the one that is built from the sources.
pub const NAR: &str = "KOP_TEST_NAR";
/// The Java that Pulsar's images of every tested release can run on.
const USUAL_JDK: u32 = 17;
/// The interceptor without which there are no offsets.
pub const INDEX_INTERCEPTOR: &str =
    "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor";
/// The interceptor that the guide names beside it.
pub const TIME_INTERCEPTOR: &str =
    "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor";

/// The release that the tests run inside; none if they run on a host of our own.
pub fn chosen() -> Result<Option<Release>, String> {
    let Ok(host) = std::env::var(HOST) else {
        return Ok(None);
    };
    match host.strip_prefix("pulsar-") {
        Some(version) => Release::of(version).map(Some),
        None => Err(format!(
            "{HOST}={host}: it names a release of Pulsar, for instance pulsar-4.0.0"
        )),
    }
}

/// The release for tests that are about Pulsar itself: the chosen one, else the newest.
pub fn release() -> Result<Release, String> {
    Ok(chosen()?.unwrap_or(Release::V4_0))
}

/// The Java that Pulsar is to run on.
pub fn jdk() -> Result<Jdk, String> {
    match std::env::var(JDK) {
        Ok(wanted) => {
            let major = wanted.parse();
            Jdk::of(major.map_err(|_| format!("{JDK}={wanted}: it is a number, for instance 25"))?)
        }
        Err(_) => Jdk::of(USUAL_JDK),
    }
}

/// The NAR in the profile of the running test; builds it once per process, unless it is known to be built.
pub fn nar() -> Result<PathBuf, String> {
    static BUILD: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        if let Some(given) = std::env::var_os(NAR) {
            return Ok(PathBuf::from(given));
        }
        let release = tools::profile_directory().ends_with("release");
        let profile = if release { "release" } else { "debug" };
        let nar = tools::target().join("nar").join(profile).join("kop.nar");
        if flag(BUILT) && nar.is_file() {
            return Ok(nar);
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .current_dir(tools::repository())
            .args(["xtask", "nar"])
            .arg(if release { "--here" } else { "--debug" });
        let finished = run(command, None, Duration::from_secs(1_800));
        if finished.success() {
            Ok(nar)
        } else {
            Err(format!("the NAR does not build:\n{}", finished.stderr))
        }
    };
    BUILD.get_or_init(build).clone()
}

/// Puts the NAR into `protocols/` of a broker's home.
pub fn place_nar(home: &Path) -> Result<(), String> {
    let protocols = home.join("protocols");
    std::fs::create_dir_all(&protocols)
        .map_err(|error| format!("{}: {error}", protocols.display()))?;
    let place = protocols.join("kop.nar");
    if place.exists() {
        return Ok(());
    }
    let nar = nar()?;
    // A hard link where it can be: a rebuild renames its file into place and leaves this one.
    let linked =
        std::fs::hard_link(&nar, &place).or_else(|_| std::fs::copy(&nar, &place).map(drop));
    linked.map_err(|error| format!("{}: {error}", nar.display()))
}

/// Keys of a configuration file in their order; a key that is set again takes its new value.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// The keys that the guide tells an operator to set, for a Kafka listener on this port.
    pub fn of_the_guide(kafka_port: u16) -> Self {
        let mut settings = Self::default();
        let listener = format!("PLAINTEXT://127.0.0.1:{kafka_port}");
        for (key, value) in [
            ("messagingProtocols", "kafka"),
            ("protocolHandlerDirectory", "./protocols"),
            ("allowAutoTopicCreationType", "partitioned"),
            ("kafkaListeners", &listener),
            ("kafkaAdvertisedListeners", &listener),
            (
                "brokerEntryMetadataInterceptors",
                &format!("{INDEX_INTERCEPTOR},{TIME_INTERCEPTOR}"),
            ),
            ("brokerDeleteInactiveTopicsEnabled", "false"),
            ("transactionCoordinatorEnabled", "true"),
            ("kafkaTransactionCoordinatorEnabled", "true"),
        ] {
            settings.set(key, value);
        }
        settings
    }

    /// Sets a key.
    pub fn set(&mut self, key: &str, value: &str) {
        self.remove(key);
        self.0.push((key.to_owned(), value.to_owned()));
    }

    /// Sets keys from lines of `key=value`.
    pub fn set_all(&mut self, lines: &str) {
        for line in lines.lines() {
            if let Some((key, value)) = line.trim().split_once('=') {
                self.set(key, value);
            }
        }
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(present, _)| present != key);
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let lines = self.0.iter().map(|(key, value)| format!("{key}={value}\n"));
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_set_again_has_its_new_value_once() {
        let mut settings = Settings::of_the_guide(9092);
        settings.set_all("a=1\n  kafkaListeners=PLAINTEXT://127.0.0.1:1\n\nb=x=y\n");
        settings.remove("a");
        let text = settings.text();
        assert_eq!(text.matches("kafkaListeners=").count(), 1, "{text}");
        assert!(
            text.contains("kafkaListeners=PLAINTEXT://127.0.0.1:1\n"),
            "{text}"
        );
        assert!(text.contains("b=x=y\n") && !text.contains("a=1"), "{text}");
    }
}
