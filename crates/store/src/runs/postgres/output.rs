//! Output of runs: pieces, for the readers of other machines.

use lockkeeper_core::id::RunId;

use super::PostgresRunStore;
use super::rows::param;
use super::snapshot::Snapshot;
use crate::StoreError;
use crate::postgres::connection::Statement;
use crate::postgres::no_row;
use crate::postgres::rows::get;
use crate::runs::columns::number;
use crate::runs::{KeptOutput, OutputChange, Piece};

const REMOVE: &str = "
    DELETE FROM lockkeeper_runs.output USING lockkeeper_runs.run
    WHERE run.project = $1 AND run.id = $2 AND output.project = $1 AND output.run = run.seq
        AND output.attempt = $3 AND output.begin >= $4 AND output.begin < $5";
/// A run that was pruned meanwhile keeps nothing.
const ADD: &str = "
    INSERT INTO lockkeeper_runs.output
    SELECT $1, run.seq, $3, piece.begin, $4, piece.bytes
    FROM lockkeeper_runs.run, unnest($5::bigint[], $6::bytea[]) AS piece(begin, bytes)
    WHERE run.project = $1 AND run.id = $2
    ON CONFLICT DO NOTHING";
/// The pieces of an attempt. The length of a piece is known without reading it.
const PIECES: &str = "
    FROM lockkeeper_runs.output JOIN lockkeeper_runs.run ON run.project = $1 AND run.seq = output.run
    WHERE output.project = $1 AND run.id = $2 AND output.attempt = $3";

impl Snapshot<'_> {
    pub(super) fn kept_output(
        &self,
        run: &RunId,
        attempt: u32,
        from: u64,
    ) -> Result<Option<KeptOutput>, StoreError> {
        let (project, run, attempt) = (self.project(), run.as_str(), i64::from(attempt));
        let found = self.query(
            &format!(
                "SELECT max(output.host), max(begin + length(bytes)), bool_or(length(bytes) = 0) {PIECES}"
            ),
            &[param(&project), param(&run), param(&attempt)],
        )?;
        let about = found.first().ok_or_else(no_row)?;
        let Some(host) = get::<Option<String>>(about, 0)? else { return Ok(None) };
        let offset = |at: i64| number(at, "offset").map_err(|what| self.damaged(what));
        let rows = self.query(
            &format!(
                "SELECT begin, bytes {PIECES} AND length(bytes) > 0 AND begin + length(bytes) > $4 ORDER BY begin"
            ),
            &[param(&project), param(&run), param(&attempt), param(&at(from))],
        )?;
        let piece = |row| Ok(Piece { from: offset(get(row, 0)?)?, bytes: get(row, 1)? });
        let pieces = rows.iter().map(piece).collect::<Result<_, StoreError>>()?;
        Ok(Some(KeptOutput { host, size: offset(get(about, 1)?)?, is_complete: get(about, 2)?, pieces }))
    }
}

impl PostgresRunStore {
    /// Writes pieces on a connection of their own, so that nobody waits behind them. They need not survive a crash of the server:
    /// the commit does not wait for the disk.
    pub(super) fn write_output(&self, changes: &[OutputChange<'_>]) -> Result<(), StoreError> {
        let project = self.project();
        let owned: Vec<_> = changes.iter().map(Owned::from).collect();
        let params: Vec<_> = owned
            .iter()
            .map(|one| {
                let run = || vec![param(&project), param(&one.run), param(&one.attempt)];
                let removed = [run(), vec![param(&one.remove.0), param(&one.remove.1)]].concat();
                let added = vec![param(&one.host), param(&one.begins), param(&one.bytes)];
                [removed, [run(), added].concat()]
            })
            .collect();
        let mut statements: Vec<Statement<'_>> =
            vec![("BEGIN", &[]), ("SET LOCAL synchronous_commit = off", &[])];
        for ([removed, added], one) in params.iter().zip(&owned) {
            if one.remove.0 < one.remove.1 {
                statements.push((REMOVE, removed));
            }
            statements.push((ADD, added));
        }
        statements.push(("COMMIT", &[]));
        let written = self.leases.server.exclusive().and_then(|connection| {
            connection.pipeline(&statements)?;
            connection.give_back();
            Ok(())
        });
        written.map_err(|failure| self.explain(failure))
    }
}

/// A change, as parameters.
struct Owned<'o> {
    run: &'o str,
    attempt: i64,
    host: &'o str,
    remove: (i64, i64),
    begins: Vec<i64>,
    bytes: Vec<&'o [u8]>,
}

impl<'o> From<&OutputChange<'o>> for Owned<'o> {
    fn from(change: &OutputChange<'o>) -> Self {
        Self {
            run: change.run.as_str(),
            attempt: i64::from(change.attempt),
            host: change.host,
            remove: (at(change.remove.start), at(change.remove.end)),
            begins: change.add.iter().map(|piece| at(piece.from)).collect(),
            bytes: change.add.iter().map(|piece| piece.bytes.as_slice()).collect(),
        }
    }
}

fn at(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
