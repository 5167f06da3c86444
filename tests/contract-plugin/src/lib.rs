//! A protocol handler that runs the contract's facts against whatever host has loaded it, as the plugin that it offers to
//! be: `kafka`. So a host inside somebody else's process passes the very tests that the others pass.
//!
//! `contractResults` names the file to which it writes a line per fact; `contractFacts`, if set, chooses those whose names
//! hold one of its words; `contractToken` is what somebody shows who may do everything. With `contractStart=refused` it
//! refuses to start.

mod facts;
mod subject;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use handler_api::{
    ApiError, ErrorCode, Handle, Host, ListenerInfo, Position, ProtocolHandler, Reply,
};

use subject::{Listening, ThisHost};

handler_api::export_handler!(ContractPlugin::default());

const RESULTS: &str = "contractResults";
const FACTS: &str = "contractFacts";
const TOKEN: &str = "contractToken";
const START: &str = "contractStart";

#[derive(Debug, Default)]
struct ContractPlugin {
    settings: Mutex<Option<Settings>>,
    listening: Arc<Listening>,
}

#[derive(Clone, Debug)]
struct Settings {
    results: PathBuf,
    chosen: Vec<String>,
    token: Option<String>,
    refuses: bool,
}

fn refused(text: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidConfiguration, text)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProtocolHandler for ContractPlugin {
    fn protocol_name(&self) -> String {
        "kafka".to_owned()
    }

    fn initialize(&self, configuration: HashMap<String, String>) -> Result<(), ApiError> {
        let given = |key: &str| configuration.get(key).filter(|value| !value.is_empty());
        let results = given(RESULTS).ok_or_else(|| {
            refused(format!(
                "{RESULTS} is not set: give the file for the results"
            ))
        })?;
        let words = given(FACTS).map_or("", String::as_str);
        *locked(&self.settings) = Some(Settings {
            results: results.into(),
            chosen: words.split_whitespace().map(str::to_owned).collect(),
            token: given(TOKEN).cloned(),
            refuses: given(START).is_some_and(|value| value == "refused"),
        });
        Ok(())
    }

    fn protocol_data_to_advertise(&self) -> String {
        String::new()
    }

    fn start(&self, host: Host) -> Reply<()> {
        let Some(settings) = locked(&self.settings).clone() else {
            return Reply::err(refused("it was not initialised".to_owned()));
        };
        if settings.refuses {
            let text = format!("{START}=refused: nothing can be started so; remove it");
            return Reply::err(refused(text));
        }
        let subject = ThisHost {
            host,
            listening: Arc::clone(&self.listening),
            token: settings.token,
        };
        let run = move || facts::run(&subject, &settings.results, &settings.chosen);
        let runner = std::thread::Builder::new().name("contract".to_owned());
        runner
            .spawn(run)
            .map(drop)
            .map_err(|error| refused(error.to_string()))
            .into()
    }

    fn listeners(&self) -> Vec<ListenerInfo> {
        Vec::new()
    }

    fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        self.listening.end_moved(handle, position, index);
    }

    fn event(&self, op: u32, payload: Bytes) {
        self.listening.event(op, payload);
    }

    fn metrics(&self) -> Bytes {
        Bytes::new()
    }

    fn close(&self) -> Reply<()> {
        Reply::ok(())
    }
}
