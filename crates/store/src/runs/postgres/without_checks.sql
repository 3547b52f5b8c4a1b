-- What check_run does from now on.
DO $$
DECLARE
    old_check text;
BEGIN
    FOR old_check IN SELECT conname FROM pg_constraint WHERE conrelid = 'lockkeeper_runs.run'::regclass AND contype = 'c' LOOP
        EXECUTE format('ALTER TABLE lockkeeper_runs.run DROP CONSTRAINT %I', old_check);
    END LOOP;
END
$$;
DROP TRIGGER IF EXISTS run_moves ON lockkeeper_runs.run;
DROP FUNCTION IF EXISTS lockkeeper_runs.refuse_move();
