//! `serve`: the HTTP API and the page.

mod access;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use clap::ValueEnum;
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::executors::{self, ExecutorFormat};
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::RunError;
use lockkeeper_engine::runs::new_request::Defaults;
use lockkeeper_engine::work::Worker;
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::poll;
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_server::log::{self, Format, Verbosity};
use lockkeeper_server::token::AccessToken;
use lockkeeper_server::{
    self, AppState, BadEndpoint, DoctorSettings, Endpoint, Limits, ServeError, Settings, Shutdown,
};

use self::access::{Serving, bind_socket, check_no_token, token_file};
use super::context::{Context, Globals};
use super::obtain::{grace, ticket_ttl};
use super::submit::{defaults, queue_limit};
use super::work::Place;
use super::{Verb, group, print, task};

/// Serve the HTTP API and the page
#[derive(clap::Args)]
#[command(after_help = "Example:\n  lockkeeper serve --open\n\n\
    The page and the API see and change the same store as the commands; several servers may share \
    it. Every request needs the token in `server.token` in the state folder; programs of the same user need none on \
    the Unix socket `server.sock` there. --open logs the browser in. The first Ctrl-C answers open requests and waits for running commands, the second stops at once.")]
pub(super) struct Args {
    /// Where to listen; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7272")]
    listen: SocketAddr,
    /// Show the page in a browser
    #[arg(long)]
    open: bool,
    /// Print a link that logs a browser in, once, instead of the address
    #[arg(long)]
    print_url: bool,
    /// Require the token in this file, which is created if it does not exist [default: server.token in the state folder]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Require no token: every user and program of this machine can run commands as you
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,
    /// Confirm --no-token as root
    #[arg(long, requires = "no_token")]
    yes: bool,
    /// Another host name that the server accepts
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Execute queued runs, this many at once; without it, only runs that are started over HTTP
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    work: u32,
    #[command(flatten)]
    place: Place,
    /// Send spans of requests and runs to this OpenTelemetry collector, such as http://127.0.0.1:4318; without this, to
    /// OTEL_EXPORTER_OTLP_ENDPOINT
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// How the log on stderr is written
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    log: LogArg,
    /// How much is logged
    #[arg(long, value_enum, value_name = "LEVEL", default_value = "info")]
    log_level: LevelArg,
}

/// Formats of the log.
#[derive(Clone, Copy, ValueEnum)]
enum LogArg {
    Text,
    Json,
}

/// How much is logged.
#[derive(Clone, Copy, ValueEnum)]
enum LevelArg {
    /// Failures
    Error,
    /// Also suspicious events
    Warn,
    /// Also changes
    Info,
    /// Also every request
    Debug,
}

impl Verb for Args {
    const NAME: &'static str = "serve";

    fn run(self, globals: &Globals) -> Result<Exit, Report> {
        run(&Context::new(globals)?, &self)
    }
}

fn run(context: &Context, args: &Args) -> Result<Exit, Report> {
    start_log(args);
    check_no_token(args)?;
    let leases = context.engine_to_execute()?;
    // On a store that several machines share nothing has made it yet.
    lockkeeper_platform::access::make_state_folder(&context.location.state).map_err(OpenError::Machine)?;
    let token_file = token_file(context, args);
    let settings = settings(context, args, token_file.as_deref())?;
    let shutdown = Shutdown::new();
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let listener = lockkeeper_server::listen(args.listen, &settings)?;
    let address = listener.local_addr().map_err(ServeError::Socket)?;
    // The lock files of requests are of use only if no executor does without them.
    let format = ExecutorFormat::of(&settings.execution);
    let _registered = (format == ExecutorFormat::Aiflow)
        .then(|| executors::register(&context.location.state, format))
        .transpose()?;
    let state = AppState::new(leases, context.location.clone(), settings)?;
    let working = (args.work > 0).then(|| work(context, args, &state)).transpose()?;
    let socket = bind_socket(context);
    let serving = Serving { address, token_file: token_file.as_deref(), socket: socket.as_ref() };
    serving.print(context, args, &state)?;
    let signalled = shutdown.clone();
    let listening =
        thread::Builder::new().name("signals".to_owned()).spawn(move || pass_on(&signals, &signalled));
    listening.map_err(OpenError::Machine)?;
    lockkeeper_server::run(listener, socket, &state, &shutdown)?;
    match working.map(JoinHandle::join) {
        None | Some(Ok(Ok(()))) => Ok(Exit::Done),
        Some(Ok(Err(error))) => Err(error.into()),
        Some(Err(_)) => Err(Report::new(Exit::Failed, "INTERNAL", "the worker panicked")),
    }
}

/// Starts a worker for queued runs. The signals that end the server end it, too.
fn work(
    context: &Context,
    args: &Args,
    state: &AppState,
) -> Result<JoinHandle<Result<(), RunError>>, Report> {
    let signals = Signals::receive(&[Signal::INT, Signal::TERM, Signal::HUP]).map_err(OpenError::Machine)?;
    let (runs, leases) = (context.runs()?, context.engine()?);
    let status = Some(StatusLog::open(args.place.status_dir(context))?);
    let settings = args.place.settings(context)?;
    let registration = executors::register(&context.location.state, ExecutorFormat::of(&settings))?;
    let worker = Worker::begin(runs, leases, settings, args.work, status, state.worker_listener())?;
    let working = thread::Builder::new().name("worker".to_owned());
    let working = working.spawn(move || {
        let ended = worker.run(&signals, false);
        drop(registration);
        ended
    });
    Ok(working.map_err(OpenError::Machine)?)
}

fn start_log(args: &Args) {
    let format = match args.log {
        LogArg::Text => Format::Text,
        LogArg::Json => Format::Json,
    };
    let verbosity = match args.log_level {
        LevelArg::Error => Verbosity::Error,
        LevelArg::Warn => Verbosity::Warn,
        LevelArg::Info => Verbosity::Info,
        LevelArg::Debug => Verbosity::Debug,
    };
    log::start(format, verbosity);
}

fn settings(context: &Context, args: &Args, token_file: Option<&Path>) -> Result<Settings, Report> {
    let token = token_file.map(AccessToken::load_or_create).transpose().map_err(ServeError::from)?;
    let ttl = match context.config.ttl("ttl") {
        Some(ttl) => ttl,
        None => Ttl::new(std::time::Duration::from_secs(300))?,
    };
    Ok(Settings {
        token,
        allowed_hosts: args.allow_host.clone(),
        language: context.language(),
        ttl,
        stays: ticket_ttl(context),
        grace: grace(context),
        execution: args.place.settings(context)?,
        status_dir: Some(args.place.status_dir(context)),
        defaults: Defaults { dir: context.location.root.clone(), ..defaults(context) },
        queue_limit: queue_limit(context),
        doctor: DoctorSettings {
            groups: group::folders(context),
            max_group_age: group::max_lock_age()?,
            swarm: task::swarm()?,
        },
        otlp: collector(args.otlp.as_deref())?,
        served: context.config.text("project").map(str::to_owned).zip(context.config.ttl("session")),
        limits: Limits::default(),
    })
}

/// The collector. One in the environment may be meant for other programs: if it cannot be used, the server starts
/// without it.
fn collector(named: Option<&str>) -> Result<Option<Endpoint>, Report> {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let service = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "lockkeeper".to_owned());
    if let Some(text) = named {
        let endpoint: Endpoint = text
            .parse()
            .map_err(|error: BadEndpoint| Report::usage(error.to_string()).with_hint(error.hint()))?;
        return Ok(Some(endpoint.named(&service)));
    }
    let text =
        variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT"));
    Ok(text.and_then(|text| match text.parse::<Endpoint>() {
        Ok(endpoint) => Some(endpoint.named(&service)),
        Err(error) => {
            print::talk(&format!("no spans are sent: {error}; {}", error.hint()));
            None
        }
    }))
}

/// The first signal drains, the second stops.
fn pass_on(signals: &Signals, shutdown: &Shutdown) {
    let mut count = 0;
    while poll::wait(&[signals.as_fd()], None).is_ok() {
        for _ in signals.take().unwrap_or_default() {
            count += 1;
            if count == 1 {
                shutdown.drain();
            } else {
                shutdown.stop();
            }
        }
    }
}
