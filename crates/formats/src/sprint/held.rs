//! Release of a lock that one process took for a command, and of no other lock.

use super::error_map;
use super::flow::open;
use super::input::Call;
use super::problem::Problem;
use super::record::Record;
use crate::guard::Removal;

/// Removes the lock if process `pid` holds it for the session of `call`. Returns false, and changes nothing, if another lock is
/// there or none.
pub fn release_held(call: &Call, pid: u32) -> Result<bool, Problem> {
    let lock = open(call).map_err(error_map::on_open)?;
    let removal = lock.remove(&mut |snapshot| {
        let record = Record::parse(snapshot.bytes());
        record.is_ok_and(|record| record.pid == i64::from(pid) && record.session_id == call.session_id)
    });
    match removal.map_err(error_map::on_delete)? {
        Removal::Removed(_) => Ok(true),
        Removal::Absent | Removal::Lost(_) => Ok(false),
    }
}
