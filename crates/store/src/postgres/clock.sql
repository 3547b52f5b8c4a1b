-- Clock, numbers and incarnation of the server. Their languages keep plans: functions in plain SQL are planned again by each statement.

-- Microseconds on the server's clock.
CREATE OR REPLACE FUNCTION lockkeeper.wall() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN extract(epoch FROM clock_timestamp()) * 1000000;
END
$$;

-- The moment on the store's clock. While the server's clock is behind `last`, it stands still, until the next commit.
CREATE OR REPLACE FUNCTION lockkeeper.moment(of_project integer) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT greatest(lockkeeper.wall(), last) + ahead FROM lockkeeper.clock WHERE project = of_project);
END
$$;

-- The timeline of the server: a promoted standby begins a new one, and so does a point-in-time recovery.
CREATE OR REPLACE FUNCTION lockkeeper.timeline() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint;
END
$$;

-- The first number of a block. The timeline is in the highest bits: a promoted standby that had not yet received the latest
-- numbers continues above them.
CREATE OR REPLACE FUNCTION lockkeeper.numbers() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (lockkeeper.timeline() << 44) + nextval('lockkeeper.numbers');
END
$$;

-- Makes all later numbers larger than this one. It adds a margin, because others draw numbers at the same time.
CREATE OR REPLACE FUNCTION lockkeeper.raise_numbers(above bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('numbers', 0));
    IF lockkeeper.numbers() <= above THEN
        PERFORM setval('lockkeeper.numbers', above - (lockkeeper.timeline() << 44) + 1048576);
    END IF;
END
$$;

-- The incarnation of the server: its timeline, the id of these tables (loading a dump makes new ones), and the time of its start
-- (a restored copy of its files needs a start).
CREATE OR REPLACE FUNCTION lockkeeper.server() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN lockkeeper.timeline() || ' ' || 'lockkeeper.record'::regclass::oid || ' '
        || extract(epoch FROM pg_postmaster_start_time());
END
$$;

-- Since when the server has lost nothing. Null if no client has noticed this incarnation yet.
CREATE OR REPLACE FUNCTION lockkeeper.remembers_since(of_project integer) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT since FROM lockkeeper.clock WHERE project = of_project AND server = lockkeeper.server());
END
$$;

-- Notes the incarnation of the server, and returns since when it has lost nothing. `has_forgotten`: the client has seen numbers
-- that the server has not drawn yet.
CREATE OR REPLACE FUNCTION lockkeeper.notice(of_project integer, has_forgotten boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    this text := lockkeeper.server();
    noted lockkeeper.clock;
    uptime bigint := lockkeeper.wall() - (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint;
    -- Above every number that was ever drawn, if fewer than 16,384 a second were drawn on average since the tables were made. One
    -- second more, because others draw numbers at the same time.
    above bigint := (extract(epoch FROM clock_timestamp())::bigint - 1767225600) << 14;
    is_restart boolean;
BEGIN
    SELECT * INTO noted FROM lockkeeper.clock WHERE project = of_project FOR UPDATE;
    IF noted.server = this AND NOT has_forgotten THEN
        RETURN noted.since;
    END IF;
    -- After a plain restart: since the start, because the server answered no client before it.
    is_restart := NOT has_forgotten AND regexp_replace(noted.server, ' [^ ]*$', '') = regexp_replace(this, ' [^ ]*$', '');
    noted.since := greatest(lockkeeper.wall(), noted.last) + noted.ahead
        - CASE WHEN is_restart THEN greatest(uptime, 0) ELSE 0 END;
    IF nextval('lockkeeper.numbers') < above THEN
        PERFORM setval('lockkeeper.numbers', above + 32768);
    END IF;
    UPDATE lockkeeper.clock SET server = this, since = noted.since WHERE project = of_project;
    RETURN noted.since;
END
$$;
