// Keeps a page up to date: receives events, loads the page again, and replaces the parts that changed. Text of users is
// always inserted as text, never as markup.

const byId = (id) => document.getElementById(id);
const texts = byId("texts").dataset;
const dialog = byId("confirm");

// Times that count on ------------------------------------------------------------------------------------------------

/** Formats a duration like the server. */
function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d > 0) return `${d}d ${h}h`;
  if (h > 0) return `${h}h ${m}m`;
  if (m > 0) return `${m}m ${s % 60}s`;
  return `${s}s`;
}

// The clock of the server is used, because the clock of the browser may be wrong.
let clockOffset = 0;
function readClock(root) {
  const drawn = Number(root.querySelector("[data-now]")?.dataset.now);
  if (drawn) clockOffset = drawn - Date.now();
}

function tick() {
  const now = Date.now() + clockOffset;
  for (const one of document.querySelectorAll("time[data-since]")) one.textContent = span(now - one.dataset.since);
  for (const one of document.querySelectorAll("time[data-until]")) one.textContent = span(one.dataset.until - now);
}

// Updates -------------------------------------------------------------------------------------------------------------

let updating = false;
let again = false;
let timer = 0;

/** Schedules an update. Many events at once cause one update, and a constant flow of events does not delay it. */
function updateSoon() {
  timer ||= setTimeout(() => {
    timer = 0;
    update();
  }, 120);
}

async function update() {
  if (updating || dialog.open) {
    again = true;
    return;
  }
  updating = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    // The session has ended: the page that asks for the token is shown instead.
    if (answer.status === 401 && !byId("log-in")) location.reload();
    if (answer.ok) replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The event stream shows that the server is gone.
  }
  updating = false;
  if (again) {
    again = false;
    updateSoon();
  }
}

function replace(drawn) {
  readClock(drawn);
  for (const fresh of drawn.querySelectorAll("[data-live][id]")) {
    const shown = byId(fresh.id);
    if (!shown || shown.outerHTML === fresh.outerHTML) continue;
    const focused = shown.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...shown.querySelectorAll("details[open][id]")].map((one) => one.id);
    const scrolled = [...shown.querySelectorAll("[data-scroll][id]")].map((one) => {
      const atEnd = one.scrollTop + one.clientHeight >= one.scrollHeight - 8;
      return [one.id, atEnd ? Infinity : one.scrollTop];
    });
    shown.replaceWith(fresh);
    open.forEach((id) => byId(id)?.setAttribute("open", ""));
    scrolled.forEach(([id, top]) => byId(id)?.scrollTo(0, top === Infinity ? byId(id).scrollHeight : top));
    if (focused) byId(focused)?.focus({ preventScroll: true });
  }
  tick();
}

// Event stream --------------------------------------------------------------------------------------------------------

let stream = null;
let last = "";

function listen() {
  if (stream) return;
  stream = new EventSource(last ? `/api/events?last_event_id=${encodeURIComponent(last)}` : "/api/events");
  for (const name of ["hello", "reset", ...texts.topics.split(" ")]) {
    stream.addEventListener(name, (event) => {
      last = event.lastEventId || last;
      updateSoon();
    });
  }
  stream.onopen = () => state("on", texts.liveOn);
  stream.onerror = () => {
    state("off", texts.liveOff);
    // A refused stream is not opened again by the browser. The update finds out why.
    if (stream?.readyState === EventSource.CLOSED) update();
  };
}

// A browser opens only few connections to one server, so hidden pages close theirs.
function disconnect() {
  stream?.close();
  stream = null;
}

function state(value, text) {
  const shown = byId("live");
  shown.dataset.liveState = value;
  shown.textContent = text;
}

/** Escapes characters that reverse text or that nobody sees, as the server does. */
export function printable(text) {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, (one) => `\\u{${one.charCodeAt(0).toString(16)}}`);
}

// Actions of the user -------------------------------------------------------------------------------------------------

function say(text, bad) {
  const line = document.createElement("div");
  line.textContent = printable(text);
  if (bad) line.className = "bad";
  byId("said").append(line);
  setTimeout(() => line.remove(), bad ? 12000 : 6000);
  return line;
}

/** Fills numbers into a text. */
function filled(text, values) {
  return text.replace(/\{(\w)\}/g, (_, name) => values[name].toLocaleString(document.documentElement.lang));
}

let decide = null;

/** Asks with a dialog; true when the user confirms. */
function confirmed(text) {
  // The close event of a dialog comes late: another question may have been opened before it.
  decide?.(false);
  byId("confirm-text").textContent = text;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => (decide = resolve));
}

function closed() {
  if (dialog.open) return;
  decide?.(dialog.returnValue === "yes");
  decide = null;
  if (again) update();
}

async function call(button) {
  if (button.dataset.confirm && !(await confirmed(button.dataset.confirm))) return;
  const [method, path] = button.dataset.call.split(" ");
  button.disabled = true;
  try {
    const body = button.dataset.body;
    const headers = body ? { "content-type": "application/json" } : {};
    let answer = await fetch(path, { method, headers, body });
    let told = await answer.json().catch(() => ({}));
    if (button.dataset.force && told.error?.code === "DEPENDS_NOT_DONE") {
      // It comes after others that are not done. Only a confirmed start ignores them.
      if (!(await confirmed(`${button.dataset.force} (${told.error.context.unmet.join(", ")})`))) return;
      answer = await fetch(`${path}?force=true`, { method, headers, body });
      told = await answer.json().catch(() => ({}));
    }
    if (!answer.ok) return refused(told.error ?? {}, answer);
    say(button.dataset.done || told.message || texts.done);
    const next = button.dataset.goto && answer.headers.get("location");
    if (next) location.href = next.replace(/^\/api/, "");
  } catch {
    say(texts.liveOff, true);
  } finally {
    button.disabled = false;
    updateSoon();
  }
}

/** Bulk operation on all matching requests: a dry run counts them, the user confirms, then they are changed in batches. */
async function callForAll(button) {
  const { bulk: path, filter, confirm: question } = button.dataset;
  const ask = async (more) => {
    const body = JSON.stringify({ ...JSON.parse(filter), ...more });
    const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body });
    const told = await answer.json().catch(() => ({}));
    if (!answer.ok) refused(told.error ?? {}, answer);
    return answer.ok ? told : null;
  };
  button.disabled = true;
  try {
    const forecast = await ask({ dry_run: true });
    if (!forecast) return;
    if (forecast.moved === 0) return say(texts.bulkNone);
    if (!(await confirmed(filled(question, { n: forecast.moved })))) return;
    const [line, sum] = [say(""), { n: 0, m: 0 }];
    // Requests that are newer than the question are left out.
    for (let after; ; ) {
      const part = await ask({ newest: forecast.newest, after });
      if (!part) return;
      sum.n += part.moved;
      sum.m += part.refused;
      line.textContent = filled(texts.bulkDone, sum);
      if (!line.isConnected) byId("said").append(line);
      if (!part.next) break;
      after = part.next;
    }
    setTimeout(() => line.remove(), 6000);
  } catch {
    say(texts.liveOff, true);
  } finally {
    button.disabled = false;
    updateSoon();
  }
}

/** Shows why a call was refused and what to do. A run in progress is linked. */
function refused(error, answer) {
  if (error.reason_code === "QUEUE_IN_PROGRESS") return say(`${texts.queueBusy} — ${(error.actions ?? []).join(" — ")}`, true);
  if (error.context?.latest_run_url) {
    location.href = error.context.latest_run_url.replace(/^\/api/, "");
    return;
  }
  say([error.title ?? `${answer.status}`, error.detail ?? error.message, ...(error.actions ?? [])].filter(Boolean).join(" — "), true);
}

function remember(name, value) {
  document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=strict`;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-call], button[data-bulk]");
  if (button) (button.dataset.bulk ? callForAll : call)(button);
});
byId("language").addEventListener("change", (event) => {
  remember("lockkeeper_lang", event.target.value);
  const address = new URL(location.href);
  address.searchParams.delete("lang");
  location.href = address;
});
byId("theme").addEventListener("change", (event) => {
  remember("lockkeeper_theme", event.target.value);
  document.documentElement.dataset.theme = event.target.value;
});
dialog.addEventListener("close", closed);
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : listen()));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(input|select|textarea)$/i.test(event.target.tagName)) return;
  const field = document.querySelector(`[data-focus-key="${CSS.escape(event.key)}"]`);
  if (field) {
    event.preventDefault();
    field.focus();
  }
  document.querySelector(`.tabs a[data-key="${CSS.escape(event.key)}"]`)?.click();
});

// A link with a code that logs in once. The code leaves the address before it is used.
function useCode() {
  const code = location.hash.match(/^#code=(\w+)$/)?.[1];
  const field = byId("code");
  if (!code || !field) return;
  history.replaceState(null, "", "/login");
  field.value = code;
  field.form.submit();
}
addEventListener("hashchange", useCode);
useCode();

readClock(document);
tick();
setInterval(tick, 1000);
for (const one of document.querySelectorAll("[data-scroll]")) one.scrollTo(0, one.scrollHeight);
if (document.querySelector("[data-log]")) import("/assets/log.mjs");
if (!document.hidden) listen();
