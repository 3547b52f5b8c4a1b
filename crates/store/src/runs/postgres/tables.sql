-- Requests, runs and their events of many projects in one PostgreSQL database.

CREATE SCHEMA lockkeeper_runs;

CREATE TABLE lockkeeper_runs.about (
    -- The version of these tables.
    version integer NOT NULL
);

-- The rows of requests and runs, in the order in which they were submitted.
CREATE SEQUENCE lockkeeper_runs.rows;

-- Positions of events.
CREATE SEQUENCE lockkeeper_runs.positions;

-- Times are in microseconds: `_at` on the wall clock; `_moment`, `give_up_at` and `retry_at` on the store's clock.
CREATE TABLE lockkeeper_runs.request (
    project integer NOT NULL,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    title text NOT NULL,
    spec text NOT NULL,
    priority integer NOT NULL,
    key text COLLATE "C",
    created_at bigint NOT NULL,
    -- It stays QUEUED until the latest run has ended.
    status text NOT NULL,
    latest bigint,
    unmet integer NOT NULL CHECK (unmet >= 0),
    PRIMARY KEY (project, seq),
    UNIQUE (project, id),
    UNIQUE (project, key)
) WITH (fillfactor = 80);
CREATE INDEX request_status ON lockkeeper_runs.request (project, status, seq);
CREATE INDEX request_next ON lockkeeper_runs.request (project, priority DESC, created_at, id)
    WHERE status = 'QUEUED' AND unmet = 0;
CREATE INDEX request_after ON lockkeeper_runs.request (project, seq) WHERE status = 'QUEUED' AND unmet > 0;

CREATE TABLE lockkeeper_runs.dependency (
    request bigint NOT NULL,
    after bigint NOT NULL,
    PRIMARY KEY (request, after),
    CHECK (request <> after)
);
CREATE INDEX dependency_after ON lockkeeper_runs.dependency (after);

-- The function check_run refuses rows that cannot be.
CREATE TABLE lockkeeper_runs.run (
    project integer NOT NULL,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    request bigint NOT NULL,
    status text NOT NULL,
    attempt bigint NOT NULL,
    claim bigint NOT NULL,
    worker text,
    holder bigint,
    pid bigint,
    pid_started bigint,
    lease bigint,
    token bigint,
    -- The priority of the request with the other sign: the smallest comes first.
    rank integer NOT NULL,
    -- 1: can be claimed. 0: waits for dependencies. -1: is claimed by its id only.
    ready smallint NOT NULL,
    -- The lease key of the request.
    wish text COLLATE "C" NOT NULL,
    queued_at bigint NOT NULL,
    queued_moment bigint NOT NULL,
    give_up_at bigint,
    started_at bigint,
    started_moment bigint,
    timeout bigint,
    retry_at bigint,
    completed_at bigint,
    completed_moment bigint,
    exit_code bigint,
    signal bigint,
    reason text,
    message text,
    help boolean NOT NULL,
    -- The number of its events.
    version bigint NOT NULL,
    -- The machine of the worker that has or had it.
    host text,
    PRIMARY KEY (project, seq),
    UNIQUE (project, id)
) WITH (fillfactor = 80);
CREATE INDEX run_request ON lockkeeper_runs.run (project, request, seq);
CREATE INDEX run_status ON lockkeeper_runs.run (project, status, seq);
CREATE INDEX run_queue ON lockkeeper_runs.run (project, rank, seq) WHERE status = 'queued' AND ready = 1;
-- Runs that need a lease. Where there are none, it is empty.
CREATE INDEX run_barrier ON lockkeeper_runs.run (project, rank, seq) WHERE status = 'queued' AND ready = 1 AND wish <> '';
CREATE INDEX run_wish ON lockkeeper_runs.run (project, wish, rank, seq) WHERE status = 'queued' AND ready = 1;
CREATE INDEX run_give_up ON lockkeeper_runs.run (project, give_up_at) WHERE status = 'queued' AND give_up_at IS NOT NULL;
CREATE INDEX run_retry ON lockkeeper_runs.run (project, retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX run_left ON lockkeeper_runs.run (project, seq) WHERE holder IS NOT NULL AND completed_at IS NOT NULL;

CREATE TABLE lockkeeper_runs.event (
    project integer NOT NULL,
    position bigint NOT NULL,
    run bigint NOT NULL,
    seq bigint NOT NULL,
    -- The number of the call that wrote it. A call that is made again after a broken connection finds its own events.
    call bigint NOT NULL,
    at bigint NOT NULL,
    kind text NOT NULL,
    from_status text,
    to_status text NOT NULL,
    attempt bigint NOT NULL,
    claim bigint NOT NULL,
    reason text,
    message text,
    PRIMARY KEY (project, position),
    UNIQUE (run, seq)
);

-- The position of the last event that a prune has removed.
CREATE TABLE lockkeeper_runs.pruned (
    project integer PRIMARY KEY,
    position bigint NOT NULL
);

CREATE TABLE lockkeeper_runs.worker (
    project integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    holder bigint NOT NULL,
    host text NOT NULL,
    boot text NOT NULL,
    pid_namespace bigint NOT NULL,
    pid bigint NOT NULL,
    pid_started bigint NOT NULL,
    jobs bigint NOT NULL,
    started_at bigint NOT NULL,
    -- How long it may be silent, in microseconds; null if it has no session.
    session bigint,
    -- When its session was last renewed, on the store's clock, and the number of that heartbeat.
    heartbeat bigint NOT NULL,
    beat bigint NOT NULL,
    -- One in each line.
    labels text NOT NULL,
    PRIMARY KEY (project, id)
);

CREATE TABLE lockkeeper_runs.auto_run (
    project integer PRIMARY KEY,
    worker text NOT NULL,
    started_at bigint NOT NULL,
    runs bigint NOT NULL,
    current text,
    stop boolean NOT NULL,
    ended text,
    -- The number of the call that counted the last run.
    call bigint
);

-- The next record of a run. request_status is set if the run has ended.
CREATE TYPE lockkeeper_runs.next AS (
    id text, version bigint, status text, attempt bigint, claim bigint, worker text, holder bigint, pid bigint,
    pid_started bigint, lease bigint, token bigint, give_up_at bigint, started_at bigint, started_moment bigint,
    retry_at bigint, completed_at bigint, completed_moment bigint, exit_code bigint, signal bigint, reason text,
    message text, help boolean, request_status text
);

-- A new run, with its request if that is new or gets a new definition.
CREATE TYPE lockkeeper_runs.new_run AS (
    is_new_request boolean, is_redefined boolean, request text, title text, spec text, priority integer, key text, after text[], created_at bigint,
    request_status text, id text, status text, wish text, by_id boolean, queued_at bigint, queued_moment bigint,
    give_up_at bigint, timeout bigint, completed_at bigint, completed_moment bigint, reason text, message text, version bigint
);

-- An event of a run.
CREATE TYPE lockkeeper_runs.new_event AS (
    run text, seq bigint, at bigint, kind text, from_status text, to_status text, attempt bigint, claim bigint, reason text,
    message text
);

-- A run with its request, as the program reads it.
CREATE VIEW lockkeeper_runs.record AS
SELECT run.seq, run.project, run.rank, run.ready, run.wish, run.retry_at, run.id, request.id AS request, run.status,
    run.attempt, run.claim, run.worker, run.holder, run.pid, run.pid_started, run.lease, run.token, run.queued_at,
    run.queued_moment, run.give_up_at, run.started_at, run.started_moment, run.timeout, run.completed_at,
    run.completed_moment, run.exit_code, run.signal, run.reason, run.message, run.help, run.version,
    request.spec, run.request AS request_seq, request.title
FROM lockkeeper_runs.run
JOIN lockkeeper_runs.request ON request.project = run.project AND request.seq = run.request;
