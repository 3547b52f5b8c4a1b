// The plugin for OpenCode. The constants `hook` (a command line) and `limit` (milliseconds) stand before this text.
import { spawnSync } from "node:child_process"

export const Test = async (context) => {
  const parents = new Map()
  // Calls the hook with an event. Returns its answer, or an empty object when it failed.
  const call = (event, session, more) => {
    const input = {
      harness: "opencode",
      hook_event_name: event,
      session_id: session,
      parent_id: parents.get(session),
      cwd: context.directory,
      ...more,
    }
    const ended = spawnSync("sh", ["-c", hook], { input: JSON.stringify(input), timeout: limit })
    try {
      return JSON.parse(ended.stdout)
    } catch {
      return {}
    }
  }
  return {
    "tool.execute.before": async (input, output) => {
      const answer = call("tool.execute.before", input.sessionID, { tool_name: input.tool, tool_input: output.args })
      if (answer.deny) throw new Error(answer.deny)
    },
    "tool.execute.after": async (input, output) => {
      const answer = call("tool.execute.after", input.sessionID, { tool_name: input.tool, tool_input: input.args })
      if (answer.tell) output.output += "\n" + answer.tell
    },
    event: async ({ event }) => {
      const names = ["session.created", "session.idle", "session.deleted"]
      if (!names.includes(event.type)) return
      const session = event.properties.sessionID ?? event.properties.info?.id
      const parent = event.properties.info?.parentID
      if (parent) parents.set(session, parent)
      call(event.type, session, {})
    },
  }
}
