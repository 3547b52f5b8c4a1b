-- A store of runs as version 1 had it: five requests, one of each state, and one that waits for another.
PRAGMA page_size = 1024;
PRAGMA journal_mode = WAL;
BEGIN TRANSACTION;
CREATE TABLE clock (boot TEXT NOT NULL) STRICT;
INSERT INTO clock VALUES('an earlier boot');
CREATE TABLE request (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    spec TEXT NOT NULL,
    priority INTEGER NOT NULL,
    key TEXT UNIQUE,
    created_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    latest INTEGER,
    unmet INTEGER NOT NULL CHECK (unmet >= 0)
) STRICT;
INSERT INTO request VALUES(1,'done','done','{"id":"done","title":"done","command":["true"],"dir":"/","env":[["PATH","/usr/bin:/bin"]],"priority":0,"retries":0,"retry_base":1000000,"retry_longest":300000000,"success":[0]}',0,NULL,1794809555933324,'DONE',1,0);
INSERT INTO request VALUES(2,'queued','queued','{"id":"queued","title":"queued","command":["true"],"dir":"/","env":[["PATH","/usr/bin:/bin"]],"priority":0,"retries":0,"retry_base":1000000,"retry_longest":300000000,"success":[0]}',0,NULL,1794809555946506,'QUEUED',2,0);
INSERT INTO request VALUES(3,'later','later','{"id":"later","title":"later","command":["true"],"dir":"/","env":[["PATH","/usr/bin:/bin"]],"priority":0,"after":["queued"],"retries":0,"retry_base":1000000,"retry_longest":300000000,"success":[0]}',0,NULL,1794809555956727,'QUEUED',3,1);
INSERT INTO request VALUES(4,'begun','begun','{"id":"begun","title":"begun","command":["true"],"dir":"/","env":[["PATH","/usr/bin:/bin"]],"priority":0,"retries":0,"retry_base":1000000,"retry_longest":300000000,"success":[0]}',0,NULL,1794809555973651,'RUNNING',4,0);
INSERT INTO request VALUES(5,'failed','failed','{"id":"failed","title":"failed","command":["true"],"dir":"/","env":[["PATH","/usr/bin:/bin"]],"priority":0,"retries":0,"retry_base":1000000,"retry_longest":300000000,"success":[0]}',0,NULL,1794809555989718,'FAILED',5,0);
CREATE TABLE dependency (
    request INTEGER NOT NULL, after INTEGER NOT NULL, PRIMARY KEY (request, after), CHECK (request <> after)
) STRICT, WITHOUT ROWID;
INSERT INTO dependency VALUES(3,2);
CREATE TABLE worker (
    id TEXT PRIMARY KEY, holder INTEGER NOT NULL, host TEXT NOT NULL, boot TEXT NOT NULL,
    pid_namespace INTEGER NOT NULL, pid INTEGER NOT NULL, pid_started INTEGER NOT NULL,
    jobs INTEGER NOT NULL, started_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE auto_run (
    worker TEXT NOT NULL, started_at INTEGER NOT NULL, runs INTEGER NOT NULL, current TEXT,
    stop INTEGER NOT NULL, ended TEXT
) STRICT;
CREATE TABLE event (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL,
    from_status TEXT, to_status TEXT NOT NULL, attempt INTEGER NOT NULL, claim INTEGER NOT NULL,
    reason TEXT, message TEXT,
    UNIQUE (run, seq)
) STRICT;
INSERT INTO event VALUES(1,1,1,1794809555933324,'submitted',NULL,'queued',0,0,NULL,NULL);
INSERT INTO event VALUES(2,2,1,1794809555946506,'submitted',NULL,'queued',0,0,NULL,NULL);
INSERT INTO event VALUES(3,3,1,1794809555956727,'submitted',NULL,'queued',0,0,NULL,NULL);
INSERT INTO event VALUES(4,4,1,1794809555973651,'submitted',NULL,'queued',0,0,NULL,NULL);
INSERT INTO event VALUES(5,5,1,1794809555989718,'submitted',NULL,'queued',0,0,NULL,NULL);
INSERT INTO event VALUES(6,1,2,1794809561994219,'claimed','queued','running',1,1,NULL,'worker w1, attempt 1');
INSERT INTO event VALUES(7,5,2,1794809562005841,'claimed','queued','running',1,1,NULL,'worker w1, attempt 1');
INSERT INTO event VALUES(8,4,2,1794809562024888,'claimed','queued','running',1,1,NULL,'worker w1, attempt 1');
INSERT INTO event VALUES(9,1,3,1794809562053154,'ended','running','succeeded',1,1,NULL,NULL);
INSERT INTO event VALUES(10,5,3,1794809562066274,'ended','running','failed',1,1,'MARKED',NULL);
CREATE TABLE run (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    request INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'cancelling', 'succeeded', 'failed', 'canceled', 'timedOut', 'rejected')),
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    claim INTEGER NOT NULL CHECK (claim >= attempt),
    worker TEXT,
    holder INTEGER, pid INTEGER, pid_started INTEGER,
    lease INTEGER, token INTEGER,
    priority INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    wish TEXT NOT NULL,
    queued_at INTEGER NOT NULL, queued_moment INTEGER NOT NULL, give_up_at INTEGER,
    started_at INTEGER, started_moment INTEGER, timeout INTEGER, retry_at INTEGER,
    completed_at INTEGER, completed_moment INTEGER,
    exit_code INTEGER, signal INTEGER, reason TEXT, message TEXT,
    help INTEGER NOT NULL,
    events INTEGER NOT NULL,
    CHECK ((status IN ('succeeded', 'failed', 'canceled', 'timedOut', 'rejected')) = (completed_at IS NOT NULL)),
    CHECK (status NOT IN ('succeeded', 'failed', 'canceled', 'timedOut', 'rejected') OR worker IS NULL),
    CHECK (status <> 'queued' OR (worker IS NULL AND claim = 0 AND started_at IS NULL)),
    CHECK (status NOT IN ('running', 'cancelling') OR (attempt > 0 AND started_at IS NOT NULL)),
    CHECK (status <> 'running' OR (worker IS NULL) = (retry_at IS NOT NULL)),
    CHECK (status NOT IN ('failed', 'canceled', 'timedOut', 'rejected') OR reason IS NOT NULL)
) STRICT;
INSERT INTO run VALUES(1,'RUN-20261116-061235-8zxpvrfd9c',1,'succeeded',1,1,NULL,NULL,NULL,NULL,NULL,NULL,0,1,'',1794809555933324,35302452697,NULL,1794809561994219,35308513591,NULL,NULL,1794809562053154,35308572527,0,NULL,NULL,NULL,0,3);
INSERT INTO run VALUES(2,'RUN-20261116-061235-xy606nzmze',2,'queued',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,1,'',1794809555946506,35302465879,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1);
INSERT INTO run VALUES(3,'RUN-20261116-061235-5kscxp9hdv',3,'queued',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,0,'',1794809555956727,35302476101,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1);
INSERT INTO run VALUES(4,'RUN-20261116-061235-xpj4hqcr1a',4,'running',1,1,'w1',NULL,NULL,NULL,NULL,NULL,0,1,'',1794809555973651,35302493024,NULL,1794809562024888,35308544260,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,2);
INSERT INTO run VALUES(5,'RUN-20261116-061235-qpq5zhvp27',5,'failed',1,1,NULL,NULL,NULL,NULL,NULL,NULL,0,1,'',1794809555989718,35302509091,NULL,1794809562005841,35308525214,NULL,NULL,1794809562066274,35308585647,3,NULL,'MARKED',NULL,0,3);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('run',5);
INSERT INTO sqlite_sequence VALUES('event',10);
CREATE INDEX request_status ON request (status, seq);
CREATE INDEX dependency_after ON dependency (after);
CREATE INDEX run_request ON run (request, seq);
CREATE INDEX run_status ON run (status, seq);
CREATE INDEX run_queue ON run (priority DESC, seq) WHERE status = 'queued' AND ready = 1;
CREATE INDEX run_wish ON run (wish, priority DESC, seq) WHERE status = 'queued' AND ready = 1;
CREATE INDEX run_give_up ON run (give_up_at) WHERE status = 'queued' AND give_up_at IS NOT NULL;
CREATE INDEX run_retry ON run (retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX run_living ON run (seq) WHERE holder IS NOT NULL OR worker IS NOT NULL;
CREATE TRIGGER run_moves BEFORE UPDATE OF status ON run
WHEN OLD.status <> NEW.status AND OLD.status || '>' || NEW.status NOT IN ('queued>running', 'queued>canceled', 'queued>timedOut', 'running>succeeded', 'running>failed', 'running>cancelling', 'running>timedOut', 'cancelling>canceled', 'cancelling>succeeded', 'cancelling>failed')
BEGIN SELECT RAISE(ABORT, 'a run does not move like this'); END;
CREATE TRIGGER run_claims BEFORE UPDATE OF claim ON run WHEN NEW.claim < OLD.claim
BEGIN SELECT RAISE(ABORT, 'a claim does not become smaller'); END;
CREATE INDEX request_next ON request (priority DESC, created_at, id) WHERE status = 'QUEUED' AND unmet = 0;
CREATE INDEX request_after ON request (seq) WHERE status = 'QUEUED' AND unmet > 0;
PRAGMA application_id = 1282101877;
PRAGMA user_version = 1;
COMMIT;
