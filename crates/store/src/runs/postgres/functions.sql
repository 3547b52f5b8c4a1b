-- The functions of the server. The rules of runs are not here: they are in the program. The functions write what the program has
-- decided, if the runs still have the versions that it read.
--
-- Planning a statement costs the server more than executing it. So the functions keep their plans (`force_generic_plan`), and all
-- steps by index: a plan may be older than most rows, so sequential scans and joins by hash or merge are off. Such plans look
-- costly to the server, which would compile them each time, so JIT is off, too.
--
-- All transactions lock in the same order, so there is no deadlock: names of a submission, requests, runs, the clock, and the log
-- of events last. A transaction that holds the lock of the log waits only for its own commit.

-- Refuses a row that cannot be a run, and a move that the table of moves does not allow. A claim number never gets smaller. These
-- are no constraints: the server would parse those again for each statement, which costs more than all indexes of the table.
CREATE OR REPLACE FUNCTION lockkeeper_runs.check_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (new.claim < old.claim OR old.status <> new.status AND NOT ({moves})) THEN
        RAISE EXCEPTION 'run % does not move from % to %', old.id, old.status, new.status USING ERRCODE = 'LK001';
    END IF;
    IF NOT (
        new.{statuses} AND new.attempt >= 0 AND new.claim >= new.attempt
        AND (new.{terminal}) = (new.completed_at IS NOT NULL)
        AND (new.completed_at IS NULL OR new.worker IS NULL)
        AND (new.status <> 'queued' OR (new.worker IS NULL AND new.claim = 0 AND new.started_at IS NULL))
        AND (new.status NOT IN ('running', 'cancelling') OR (new.attempt > 0 AND new.started_at IS NOT NULL))
        AND (new.status <> 'running' OR (new.worker IS NULL) = (new.retry_at IS NOT NULL))
        AND (new.completed_at IS NULL OR new.status = 'succeeded' OR new.reason IS NOT NULL)
    ) THEN
        RAISE EXCEPTION 'run % has an impossible row', new.id USING ERRCODE = 'LK001';
    END IF;
    RETURN new;
END
$$;
DROP TRIGGER IF EXISTS run_rows ON lockkeeper_runs.run;
CREATE TRIGGER run_rows BEFORE INSERT OR UPDATE ON lockkeeper_runs.run FOR EACH ROW EXECUTE FUNCTION lockkeeper_runs.check_run();

-- Waits for the transactions that use the same names, in one order. Names share 1,024 locks, so that a large submission does not
-- exceed the server's limit of locks.
CREATE OR REPLACE FUNCTION lockkeeper_runs.lock_names(of_project integer, names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    hash integer;
BEGIN
    FOR hash IN SELECT DISTINCT hashtext(name) & 1023 FROM unnest(names) AS name ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(of_project || ' name ' || hash, 0));
    END LOOP;
END
$$;

-- Locks requests and those that depend on them. Nobody can add a dependency on them before this transaction has ended.
CREATE OR REPLACE FUNCTION lockkeeper_runs.lock_requests(of_project integer, seqs bigint[]) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM FROM lockkeeper_runs.request
    WHERE project = of_project
        AND seq = ANY (seqs || ARRAY(SELECT request FROM lockkeeper_runs.dependency WHERE after = ANY (seqs)))
    ORDER BY seq FOR NO KEY UPDATE;
END
$$;

-- For the requests that depend on this one: counts their open dependencies again, and sets whether their runs can be claimed.
CREATE OR REPLACE FUNCTION lockkeeper_runs.settle(of_project integer, of_request bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    dependents bigint[] := ARRAY(SELECT request FROM lockkeeper_runs.dependency WHERE after = of_request);
BEGIN
    IF dependents = '{}' THEN
        RETURN;
    END IF;
    -- Again, for a dependency that was added since the first query.
    PERFORM FROM lockkeeper_runs.request WHERE project = of_project AND seq = ANY (dependents) ORDER BY seq FOR NO KEY UPDATE;
    UPDATE lockkeeper_runs.request AS later SET unmet = (
        SELECT count(*) FROM lockkeeper_runs.dependency
        JOIN lockkeeper_runs.request AS before ON before.project = of_project AND before.seq = dependency.after
        WHERE dependency.request = later.seq AND before.status <> 'DONE'
    ) WHERE project = of_project AND seq = ANY (dependents);
    UPDATE lockkeeper_runs.run SET ready = (request.unmet = 0)::integer
    FROM lockkeeper_runs.request
    WHERE request.project = of_project AND request.seq = run.request
        AND run.project = of_project AND run.request = ANY (dependents) AND run.status = 'queued' AND run.ready >= 0
        AND run.ready <> (request.unmet = 0)::integer;
END
$$;

-- Writes the next records of runs, in their order, each only if the run has the version before it. Returns for each whether it
-- was written, by this call or by an earlier try of it.
CREATE OR REPLACE FUNCTION lockkeeper_runs.move(of_project integer, of_call bigint, list text) RETURNS boolean[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    wanted lockkeeper_runs.next;
    all_wanted lockkeeper_runs.next[] :=
        ARRAY(SELECT one FROM jsonb_populate_recordset(NULL::lockkeeper_runs.next, list::jsonb) AS one);
    ended bigint[];
    moved record;
    applied boolean[] := '{}';
BEGIN
    ended := ARRAY(
        SELECT run.request FROM unnest(all_wanted) AS next
        JOIN lockkeeper_runs.run ON run.project = of_project AND run.id = next.id
        WHERE next.request_status IS NOT NULL
    );
    IF ended <> '{}' THEN
        PERFORM lockkeeper_runs.lock_requests(of_project, ended);
    END IF;
    IF cardinality(all_wanted) > 1 THEN
        PERFORM FROM lockkeeper_runs.run
        WHERE project = of_project AND id = ANY (ARRAY(SELECT next.id FROM unnest(all_wanted) AS next))
        ORDER BY seq FOR NO KEY UPDATE;
    END IF;
    FOREACH wanted IN ARRAY all_wanted LOOP
        UPDATE lockkeeper_runs.run SET
            status = wanted.status, attempt = wanted.attempt, claim = wanted.claim, worker = wanted.worker,
            holder = wanted.holder, pid = wanted.pid, pid_started = wanted.pid_started, lease = wanted.lease,
            token = wanted.token, give_up_at = wanted.give_up_at, started_at = wanted.started_at,
            started_moment = wanted.started_moment, retry_at = wanted.retry_at, completed_at = wanted.completed_at,
            completed_moment = wanted.completed_moment, exit_code = wanted.exit_code, signal = wanted.signal,
            reason = wanted.reason, message = wanted.message, help = wanted.help, version = wanted.version,
            host = CASE WHEN wanted.worker IS NULL OR wanted.worker = run.worker THEN run.host
                ELSE (SELECT w.host FROM lockkeeper_runs.worker AS w WHERE w.project = of_project AND w.id = wanted.worker) END
        WHERE project = of_project AND id = wanted.id AND version = wanted.version - 1
        RETURNING seq, request INTO moved;
        IF NOT FOUND THEN
            applied := applied || EXISTS (
                SELECT FROM lockkeeper_runs.event JOIN lockkeeper_runs.run ON run.project = of_project AND run.seq = event.run
                WHERE run.id = wanted.id AND event.seq = wanted.version AND event.call = of_call
            );
            CONTINUE;
        END IF;
        applied := applied || true;
        IF wanted.request_status IS NOT NULL THEN
            UPDATE lockkeeper_runs.request SET status = wanted.request_status
            WHERE project = of_project AND seq = moved.request AND latest = moved.seq;
            IF FOUND THEN
                PERFORM lockkeeper_runs.settle(of_project, moved.request);
            END IF;
        END IF;
    END LOOP;
    RETURN applied;
END
$$;

-- Replaces the definition of a request, whose new dependencies exist.
CREATE OR REPLACE FUNCTION lockkeeper_runs.redefine(of_project integer, of_request bigint, new_run lockkeeper_runs.new_run)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    dependencies bigint[] := ARRAY(
        SELECT seq FROM lockkeeper_runs.request WHERE project = of_project AND id = ANY (new_run.after)
    );
BEGIN
    IF EXISTS (
        SELECT FROM lockkeeper_runs.request WHERE project = of_project AND key = new_run.key AND seq <> of_request
    ) THEN
        RAISE EXCEPTION 'the key of request % is taken', new_run.request USING ERRCODE = 'LK001';
    END IF;
    IF cardinality(dependencies) < (SELECT count(DISTINCT id) FROM unnest(new_run.after) AS id) THEN
        RAISE EXCEPTION 'a dependency of request % is not there', new_run.request USING ERRCODE = 'LK001';
    END IF;
    DELETE FROM lockkeeper_runs.dependency WHERE request = of_request;
    INSERT INTO lockkeeper_runs.dependency SELECT of_request, unnest(dependencies);
    UPDATE lockkeeper_runs.request SET
        title = new_run.title, spec = new_run.spec, priority = new_run.priority, key = new_run.key,
        created_at = new_run.created_at, unmet = (
            SELECT count(*) FROM lockkeeper_runs.request AS before
            WHERE before.project = of_project AND before.seq = ANY (dependencies) AND before.status <> 'DONE'
        )
    WHERE project = of_project AND seq = of_request;
END
$$;

-- Inserts new runs, and new requests whose dependencies exist.
CREATE OR REPLACE FUNCTION lockkeeper_runs.insert(of_project integer, list text) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    new_run lockkeeper_runs.new_run;
    request_seq bigint;
    run_seq bigint;
    dependencies bigint[];
    is_rejected boolean;
BEGIN
    FOR new_run IN SELECT * FROM jsonb_populate_recordset(NULL::lockkeeper_runs.new_run, list::jsonb) LOOP
        is_rejected := new_run.status = 'rejected';
        IF new_run.is_new_request THEN
            request_seq := nextval('lockkeeper_runs.rows');
            run_seq := nextval('lockkeeper_runs.rows');
            dependencies := ARRAY(
                SELECT seq FROM lockkeeper_runs.request WHERE project = of_project AND id = ANY (new_run.after)
            );
            INSERT INTO lockkeeper_runs.request VALUES (
                of_project, request_seq, new_run.request, new_run.title, new_run.spec, new_run.priority, new_run.key,
                new_run.created_at, new_run.request_status, CASE WHEN NOT is_rejected THEN run_seq END,
                (
                    SELECT count(*) FROM lockkeeper_runs.request
                    WHERE project = of_project AND seq = ANY (dependencies) AND status <> 'DONE'
                )
            ) ON CONFLICT DO NOTHING;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'the id or key of request % is taken', new_run.request USING ERRCODE = 'LK001';
            END IF;
            IF cardinality(dependencies) < (SELECT count(DISTINCT id) FROM unnest(new_run.after) AS id) THEN
                RAISE EXCEPTION 'a dependency of request % is not there', new_run.request USING ERRCODE = 'LK001';
            END IF;
            INSERT INTO lockkeeper_runs.dependency SELECT request_seq, unnest(dependencies);
        ELSE
            run_seq := nextval('lockkeeper_runs.rows');
            request_seq := (
                SELECT seq FROM lockkeeper_runs.request WHERE project = of_project AND id = new_run.request
            );
            IF new_run.is_redefined THEN
                PERFORM lockkeeper_runs.redefine(of_project, request_seq, new_run);
            END IF;
            -- A rejected run does not change the status of a request that has other runs.
            UPDATE lockkeeper_runs.request SET
                status = new_run.request_status, latest = CASE WHEN NOT is_rejected THEN run_seq END
            WHERE project = of_project AND seq = request_seq AND (latest IS NULL OR NOT is_rejected);
            IF NOT is_rejected THEN
                PERFORM lockkeeper_runs.settle(of_project, request_seq);
            END IF;
        END IF;
        INSERT INTO lockkeeper_runs.run (
            project, seq, id, request, status, attempt, claim, rank, ready, wish, queued_at, queued_moment, give_up_at,
            timeout, completed_at, completed_moment, reason, message, help, version
        ) SELECT
            of_project, run_seq, new_run.id, request_seq, new_run.status, 0, 0, -request.priority,
            CASE WHEN new_run.by_id THEN -1 ELSE (request.unmet = 0)::integer END, new_run.wish, new_run.queued_at,
            new_run.queued_moment, new_run.give_up_at, new_run.timeout, new_run.completed_at, new_run.completed_moment,
            new_run.reason, new_run.message, false, new_run.version
        FROM lockkeeper_runs.request WHERE project = of_project AND seq = request_seq;
    END LOOP;
END
$$;

-- Appends the events that were applied, as the last step of a transaction.
--
-- The log is locked until the commit, so positions become visible in their order. The commit itself does not wait for the disk:
-- the log would be locked meanwhile. The program waits for the disk in the next statement, together with others.
CREATE OR REPLACE FUNCTION lockkeeper_runs.append(of_project integer, of_call bigint, list text, applied boolean[])
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now_wall bigint := lockkeeper.wall();
    -- A promoted standby that had not yet received the latest positions continues above them.
    timeline bigint := lockkeeper.timeline() << 40;
    events lockkeeper_runs.event[];
BEGIN
    IF NOT (true = ANY (applied)) THEN
        RETURN;
    END IF;
    -- Everything that needs no position comes before the lock.
    events := ARRAY(
        SELECT ROW (of_project, 0, run.seq, event.seq, of_call, at, kind, from_status, to_status, event.attempt, event.claim,
            event.reason, event.message)::lockkeeper_runs.event
        FROM jsonb_populate_recordset(NULL::lockkeeper_runs.new_event, list::jsonb)
            WITH ORDINALITY AS event(run, seq, at, kind, from_status, to_status, attempt, claim, reason, message, place)
        JOIN lockkeeper_runs.run ON run.project = of_project AND run.id = event.run
        WHERE applied[event.place] ORDER BY event.place
    );
    UPDATE lockkeeper.clock SET ahead = ahead + greatest(0, last - now_wall), last = now_wall
    WHERE project = of_project AND (now_wall < last OR now_wall > last + 1000000);
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM pg_advisory_xact_lock(hashtextextended(of_project || ' events', 0));
    IF EXISTS (SELECT FROM lockkeeper.moved WHERE project = of_project) THEN
        PERFORM lockkeeper.refuse_moved(of_project);
    END IF;
    INSERT INTO lockkeeper_runs.event
    SELECT project, timeline + nextval('lockkeeper_runs.positions'), run, seq, call, at, kind, from_status, to_status, attempt,
        claim, reason, message
    FROM unnest(events)
    -- An earlier try of the same call has written it.
    ON CONFLICT (run, seq) DO NOTHING;
END
$$;

-- Locks the next runs that can be claimed, at most `how_many`: the first of the queue that nobody else is claiming. A strict claim
-- ends before the first run that needs a lease, and due attempts come first among runs of the same priority. An earlier try
-- of the same call whose connection broke has to be over: it holds the locks of the runs.
CREATE OR REPLACE FUNCTION lockkeeper_runs.take(of_project integer, of_call bigint, now_moment bigint, how_many integer, is_strict boolean)
RETURNS SETOF lockkeeper_runs.record LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    taken bigint[] := '{}';
    barriers bigint[];
    next record;
    last_rank integer := -2147483648;
    last_seq bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(of_call);
    IF is_strict THEN
        taken := ARRAY(
            SELECT seq FROM lockkeeper_runs.run
            WHERE project = of_project AND retry_at <= now_moment AND ready = 1 AND wish = ''
            ORDER BY rank, retry_at, seq LIMIT how_many FOR UPDATE SKIP LOCKED
        );
    END IF;
    FOR place IN 1 .. how_many LOOP
        SELECT run.rank, run.seq INTO next FROM lockkeeper_runs.run
        WHERE project = of_project AND status = 'queued' AND ready = 1 AND wish = ''
            AND (run.rank, run.seq) > (last_rank, last_seq)
        ORDER BY run.rank, run.seq LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            -- All others need a lease, or are being claimed.
            last_rank := 2147483647;
            EXIT;
        END IF;
        taken := taken || next.seq;
        last_rank := next.rank;
        last_seq := next.seq;
    END LOOP;
    IF taken = '{}' THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM lockkeeper_runs.record WHERE project = of_project AND seq = ANY (taken);
    IF is_strict THEN
        -- The claim ends at the first run that needs a lease. Mostly there is none, and a partial index shows that.
        barriers := ARRAY(
            SELECT seq FROM lockkeeper_runs.run
            WHERE project = of_project AND retry_at <= now_moment AND ready = 1 AND wish <> ''
            ORDER BY rank, retry_at, seq LIMIT 1
        ) || ARRAY(
            SELECT seq FROM lockkeeper_runs.run
            WHERE project = of_project AND status = 'queued' AND ready = 1 AND wish <> ''
                AND (rank, seq) < (last_rank, last_seq)
            ORDER BY rank, seq LIMIT 1
        );
        IF barriers <> '{}' THEN
            RETURN QUERY SELECT * FROM lockkeeper_runs.record WHERE project = of_project AND seq = ANY (barriers);
        END IF;
    END IF;
END
$$;
