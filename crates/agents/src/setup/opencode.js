// Written by `lockkeeper init`, removed by `lockkeeper init --remove`. The constants above are the command line and its limit in ms.
import { spawn } from "node:child_process"

export const Lockkeeper = async (context) => {
  // The session above each sub-agent's session.
  const parents = new Map()

  // Calls the hook with an event. Returns its answer, or an empty object if it fails: then the call goes on.
  const call = (event, session, more) =>
    new Promise((resolve) => {
      const input = {
        harness: "opencode",
        hook_event_name: event,
        session_id: session,
        parent_id: parents.get(session),
        cwd: context.directory,
        ...more,
      }
      let text = ""
      const answer = () => {
        try {
          resolve(JSON.parse(text))
        } catch {
          resolve({})
        }
      }
      try {
        const child = spawn("sh", ["-c", hook], { stdio: ["pipe", "pipe", "ignore"], timeout: limit })
        child.stdout.on("data", (data) => (text += data))
        child.on("close", answer)
        child.on("error", answer)
        child.stdin.on("error", () => {})
        child.stdin.end(JSON.stringify(input))
      } catch {
        resolve({})
      }
    })

  const owner = (session) => {
    const above = parents.get(session)
    return above ? `${owner(above)}:${session}` : `opencode:${session}`
  }

  return {
    "tool.execute.before": async (input, output) => {
      const more = { tool_name: input.tool, tool_input: output.args }
      const answer = await call("tool.execute.before", input.sessionID, more)
      if (answer.deny) throw new Error(answer.deny)
    },
    "tool.execute.after": async (input, output) => {
      const more = { tool_name: input.tool, tool_input: input.args }
      const answer = await call("tool.execute.after", input.sessionID, more)
      if (answer.tell && typeof output.output === "string") output.output += "\n" + answer.tell
    },
    "shell.env": async (input, output) => {
      if (input.sessionID) output.env.LOCKKEEPER_OWNER = owner(input.sessionID)
    },
    event: async ({ event }) => {
      const names = ["session.created", "session.idle", "session.deleted"]
      if (!names.includes(event.type)) return
      const session = event.properties.sessionID ?? event.properties.info?.id
      const parent = event.properties.info?.parentID
      if (parent) parents.set(session, parent)
      await call(event.type, session, {})
    },
  }
}
