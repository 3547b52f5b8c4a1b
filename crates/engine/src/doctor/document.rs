//! JSON document of a diagnosis, with the machine and the folders that were examined.

use lockkeeper_platform::volume::Volume;
use serde_json::{Value, json};

use super::{Check, Context, Diagnosis, Opened, Pass, Recovered, Status};
use crate::location::LocationSource;
use crate::views::AlertView;

/// The version of the document.
const VERSION: &str = "1.0";

/// The machine and the folders that were examined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    fields: Vec<(&'static str, Value)>,
}

impl Environment {
    pub(super) fn of(context: &Context<'_>) -> Self {
        let system = rustix::system::uname();
        let text = |text: &std::ffi::CStr| Value::from(text.to_string_lossy().into_owned());
        let path = |path: &std::path::Path| Value::from(path.to_string_lossy().into_owned());
        let because = match context.inputs.location.source {
            LocationSource::Named => "named",
            LocationSource::Git => "inside the git folder",
            LocationSource::Found => "found here or above",
            LocationSource::Here => "would be made here",
        };
        let engine = match &context.inputs.store {
            Opened::Open(engine) => engine.store().examine(false).map(|found| found.engine).ok(),
            Opened::Absent | Opened::Refused { .. } => None,
        };
        let origin = context.engine().map(|engine| engine.probe().origin());
        let volume = Volume::of(context.existing_folder()).ok();
        let fields = vec![
            ("lockkeeper", env!("CARGO_PKG_VERSION").into()),
            ("system", text(system.sysname())),
            ("release", text(system.release())),
            ("machine", text(system.machine())),
            ("host", text(system.nodename())),
            ("user", rustix::process::geteuid().as_raw().into()),
            ("pid_namespace", origin.map(|origin| origin.pid_namespace).into()),
            ("time", context.inputs.now.to_string().into()),
            ("state", path(&context.inputs.location.state)),
            ("state_because", because.into()),
            ("root", path(&context.inputs.location.root)),
            ("store", engine.into()),
            ("file_system", volume.and_then(|volume| volume.kind).into()),
            ("lock_dir", path(context.inputs.groups.first())),
            ("ai_swarm_dir", path(context.inputs.swarm.dir())),
        ];
        Self { fields }
    }

    /// One JSON object.
    pub fn to_json(&self) -> Value {
        Value::Object(self.fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    }
}

impl Diagnosis {
    /// The JSON document. The command line, the HTTP API and the page all show this one.
    pub fn to_json(&self) -> Value {
        let mode = match self.pass {
            Pass::Quick => "quick",
            Pass::Full => "full",
        };
        json!({
            "version": VERSION,
            "mode": mode,
            "summary": {
                "status": self.status().word(),
                "fail_count": self.count(Status::Fail),
                "warn_count": self.count(Status::Warn),
                "recovered_count": self.recovered().count(),
            },
            "checks": self.checks.iter().map(Check::to_json).collect::<Vec<_>>(),
            "alerts": self.alerts.iter().map(AlertView::new).collect::<Vec<_>>(),
            "environment": self.environment.to_json(),
        })
    }
}

impl Check {
    /// One entry of the document.
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "title": self.title,
            "status": self.status.word(),
            "detail": self.detail,
            "fix": self.fix,
            "recovered": self.recovered.iter().map(Recovered::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Recovered {
    /// One entry of `recovered`.
    pub fn to_json(&self) -> Value {
        json!({ "reason_code": self.reason_code(), "format": self.format, "what": self.what, "why": self.why })
    }
}
