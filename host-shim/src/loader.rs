//! Finds protocol handlers in `protocolHandlerDirectory`, checks their ABI, loads them, and never unloads them.
//!
//! Every `*.so` of the directory is looked at, as Pulsar looks at every `*.nar`; those that `messagingProtocols` does
//! not name are put aside again. It must not know any protocol, nor what a plugin is used for.

mod elf;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use abi_stable::library::{LibraryError, lib_header_from_path};
use handler_api::ffi::HandlerModuleRef;
use handler_api::{ABI_VERSION, Handler};

/// A plugin that was named and loaded. Its library stays for the life of the process.
#[derive(Debug)]
pub struct Plugin {
    /// The protocol as `messagingProtocols` spells it.
    pub protocol: String,
    /// The file it came from; empty for one that was not loaded from a file.
    pub path: PathBuf,
    /// The contract's version it was built against.
    pub abi_version: String,
    /// What it offers.
    pub handler: Handler,
}

/// Why a named protocol cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The directory cannot be listed.
    #[error(
        "cannot list protocolHandlerDirectory={directory}: {source}; create it and put the plugin of {protocols} there"
    )]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// The protocols that are named.
        protocols: String,
    },
    /// No plugin offers it.
    #[error(
        "messagingProtocols names {protocol}, but no plugin in {directory} offers it; found there: {}",
        findings(.found)
    )]
    Missing {
        /// The protocol.
        protocol: String,
        /// The directory.
        directory: PathBuf,
        /// Each file and what it offers, or why it is no plugin.
        found: BTreeMap<PathBuf, Finding>,
    },
    /// The file that was named is no plugin, or one of another protocol.
    #[error("{path} is no plugin of {protocol}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The protocol.
        protocol: String,
        /// Why not.
        reason: String,
    },
    /// Two plugins offer it.
    #[error("both {first} and {second} offer {protocol}; remove one of them")]
    Ambiguous {
        /// The protocol.
        protocol: String,
        /// The first file.
        first: PathBuf,
        /// The second file.
        second: PathBuf,
    },
}

/// What a file of the directory turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A plugin of this protocol.
    Offers(String),
    /// No plugin that could be loaded: the reason, one line.
    Unusable(String),
}

fn findings(found: &BTreeMap<PathBuf, Finding>) -> String {
    if found.is_empty() {
        return "no *.so file".to_owned();
    }
    let describe = |(path, finding): (&PathBuf, &Finding)| match finding {
        Finding::Offers(protocol) => format!("{} ({protocol})", name_of(path)),
        Finding::Unusable(reason) => format!("{} ({reason})", name_of(path)),
    };
    let lines: Vec<String> = found.iter().map(describe).collect();
    lines.join(", ")
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Loads the plugin of each named protocol. A file that is no usable plugin is a warning, and an error only if a named
/// protocol stays without one.
pub fn load(directory: &Path, protocols: &[String]) -> Result<Vec<Plugin>, LoadError> {
    if protocols.is_empty() {
        return Ok(Vec::new());
    }
    let files = libraries(directory).map_err(|source| LoadError::Directory {
        directory: directory.to_owned(),
        source,
        protocols: protocols.join(", "),
    })?;
    let mut found = BTreeMap::new();
    let mut candidates = Vec::new();
    for path in files {
        match load_file(&path) {
            Ok(candidate) => {
                let protocol = candidate.handler.protocol_name();
                found.insert(path, Finding::Offers(protocol));
                candidates.push(candidate);
            }
            Err(error) => {
                tracing::warn!("skipped {}: {error}", path.display());
                if let Some(details) = &error.details {
                    tracing::debug!("{}: {details}", path.display());
                }
                found.insert(path, Finding::Unusable(error.to_string()));
            }
        }
    }
    let mut plugins = Vec::new();
    for protocol in protocols {
        let accepts = |candidate: &Candidate| candidate.handler.accept(protocol);
        let mut offers = candidates.extract_if(.., |candidate| accepts(candidate));
        let Some(chosen) = offers.next() else {
            return Err(LoadError::Missing {
                protocol: protocol.clone(),
                directory: directory.to_owned(),
                found,
            });
        };
        if let Some(other) = offers.next() {
            return Err(LoadError::Ambiguous {
                protocol: protocol.clone(),
                first: chosen.path,
                second: other.path,
            });
        }
        drop(offers);
        plugins.push(Plugin {
            protocol: protocol.clone(),
            path: chosen.path,
            abi_version: chosen.abi_version,
            handler: chosen.handler,
        });
    }
    Ok(plugins)
}

/// Loads the plugin of a protocol from one file, for hosts that know it.
pub fn load_plugin(path: &Path, protocol: &str) -> Result<Plugin, LoadError> {
    let refused = |reason: String| LoadError::File {
        path: path.to_owned(),
        protocol: protocol.to_owned(),
        reason,
    };
    let candidate = load_file(path).map_err(|error| refused(error.to_string()))?;
    if !candidate.handler.accept(protocol) {
        let offered = candidate.handler.protocol_name();
        return Err(refused(format!("it offers {offered}")));
    }
    Ok(Plugin {
        protocol: protocol.to_owned(),
        path: candidate.path,
        abi_version: candidate.abi_version,
        handler: candidate.handler,
    })
}

/// The `*.so` files of a directory, by name.
fn libraries(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "so") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

struct Candidate {
    path: PathBuf,
    abi_version: String,
    handler: Handler,
}

/// Why a file is no usable plugin.
#[derive(Debug)]
struct Unusable {
    reason: String,
    /// What only a developer of the ABI wants to read.
    details: Option<String>,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<String> for Unusable {
    fn from(reason: String) -> Self {
        Self {
            reason,
            details: None,
        }
    }
}

/// Loads one file. Not `load_from_file` of the ABI crate, which gives the first plugin again for every later file.
fn load_file(path: &Path) -> Result<Candidate, Unusable> {
    elf::check(path).map_err(|error| error.to_string())?;
    let whole = std::path::absolute(path).map_err(|error| error.to_string())?;
    let header = lib_header_from_path(&whole).map_err(explain_open)?;
    let version = header.version_strings().version.to_string();
    let module = header
        .init_root_module::<HandlerModuleRef>()
        .map_err(|error| explain_mismatch(&error, &version))?;
    let abi_version = module.abi_version()().into_string();
    if major(&abi_version) != major(ABI_VERSION) {
        return Err(other_version(&abi_version).into());
    }
    let made = module.new_handler()().into_result();
    let handler = made.map_err(|error| one_line(&error.to_string()))?;
    Ok(Candidate {
        path: path.to_owned(),
        abi_version,
        handler: Handler::new(handler),
    })
}

fn major(version: &str) -> &str {
    version.split('.').next().unwrap_or(version)
}

fn other_version(plugin: &str) -> String {
    format!(
        "built against ABI {plugin}, this host has ABI {ABI_VERSION}: take a plugin and a host of the same major version"
    )
}

fn explain_open(error: LibraryError) -> Unusable {
    match error {
        LibraryError::OpenError { err, .. } => one_line(&err.to_string()).into(),
        LibraryError::GetSymbolError { .. } => "is no protocol handler: it exports no root module"
            .to_owned()
            .into(),
        other => Unusable {
            reason: format!(
                "built with another release of the ABI crate than this host (ABI {ABI_VERSION})"
            ),
            details: Some(other.to_string()),
        },
    }
}

fn explain_mismatch(error: &LibraryError, version: &str) -> Unusable {
    match error {
        LibraryError::IncompatibleVersionNumber { .. } => other_version(version).into(),
        LibraryError::AbiInstability(_) => Unusable {
            reason: format!(
                "built against ABI {version}, whose types differ from those of this host's ABI {ABI_VERSION}: build \
                 both from released versions"
            ),
            details: Some(error.to_string()),
        },
        other => one_line(&other.to_string()).into(),
    }
}

/// The first line that says something, without control characters.
fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("no reason given")
        .replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(files: &[(&str, &[u8])], protocols: &[&str]) -> String {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        let protocols: Vec<String> = protocols.iter().map(|p| (*p).to_owned()).collect();
        let error = load(directory.path(), &protocols).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error.replace(&directory.path().display().to_string(), "DIR")
    }

    #[test]
    fn a_missing_plugin_is_named_with_what_was_found() {
        assert_eq!(
            fails(&[("README.md", b"x")], &["kafka"]),
            "messagingProtocols names kafka, but no plugin in DIR offers it; found there: no *.so file"
        );
        assert_eq!(
            fails(&[("a.so", b"x"), ("b.so", b"")], &["kafka"]),
            "messagingProtocols names kafka, but no plugin in DIR offers it; found there: \
             a.so (is no shared library (no ELF file)), b.so (is no shared library (no ELF file))"
        );
    }

    #[test]
    fn a_missing_directory_is_named_with_its_key() {
        let error = load(Path::new("/none/protocols"), &["kafka".to_owned()]).unwrap_err();
        let text = error.to_string();
        let start = "cannot list protocolHandlerDirectory=/none/protocols: ";
        assert!(text.starts_with(start), "{text}");
        assert!(text.ends_with("put the plugin of kafka there"), "{text}");
    }

    #[test]
    fn without_protocols_nothing_is_looked_for() {
        assert!(load(Path::new("/none/protocols"), &[]).unwrap().is_empty());
    }
}
