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

/** Writes a text without replacing its node, so that a selection around it stays. */
function write(element, text) {
  if (element.firstChild?.nodeType !== Node.TEXT_NODE) element.textContent = text;
  else if (element.firstChild.data !== text) element.firstChild.data = text;
}

const local = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "medium" });

/** A time has its other forms as a tooltip: local time, UTC, and how long ago it was. */
function explain(time, now) {
  const { at, since, until } = time.dataset;
  const point = Number(at ?? since ?? until);
  if (!point) return;
  const utc = new Date(point).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
  if (at) write(time, local.format(point));
  const title = at ? `${utc} · ${span(Math.abs(now - point))}` : `${local.format(point)} · ${utc}`;
  if (time.title !== title) time.title = title;
}

function tick() {
  const now = Date.now() + clockOffset;
  for (const one of document.querySelectorAll("time[data-since]")) write(one, span(now - one.dataset.since));
  for (const one of document.querySelectorAll("time[data-until]")) write(one, span(one.dataset.until - now));
  for (const one of document.querySelectorAll("time")) explain(one, now);
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
  if (updating || document.querySelector("dialog[open]")) {
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
  if (document.title !== drawn.title) document.title = drawn.title;
  for (const fresh of drawn.querySelectorAll("[data-live][id]")) {
    const shown = byId(fresh.id);
    if (!shown) continue;
    const scrolled = [...shown.querySelectorAll("[data-scroll][id]")].filter((one) => one.scrollTop + one.clientHeight >= one.scrollHeight - 8);
    morph(shown, fresh);
    scrolled.forEach((one) => one.scrollTo(0, one.scrollHeight));
  }
  noticeAttention();
  tick();
}

/** Makes an element like a fresh one. Nodes that stay the same are kept, and with them the selection and the focus. */
function morph(shown, fresh) {
  if (shown.isEqualNode(fresh)) return;
  if (shown.nodeType !== fresh.nodeType || shown.nodeName !== fresh.nodeName) return shown.replaceWith(fresh);
  if (shown.nodeType !== Node.ELEMENT_NODE) {
    if (shown.data !== fresh.data) shown.data = fresh.data;
    return;
  }
  const own = (name) => ["open", "data-busy"].includes(name) || (name === "disabled" && shown.dataset.busy);
  for (const { name } of [...shown.attributes]) if (!fresh.hasAttribute(name) && !own(name)) shown.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (shown.getAttribute(name) !== value && !own(name)) shown.setAttribute(name, value);
  let next = shown.firstChild;
  for (const child of [...fresh.childNodes]) {
    // A row is found by its id, wherever it is now.
    const same = (child.id && [...shown.children].find((one) => one.id === child.id)) || (next && !next.id && !child.id ? next : null);
    if (!same) shown.insertBefore(child, next);
    else {
      if (same === next) next = next.nextSibling;
      else shown.insertBefore(same, next);
      morph(same, child);
    }
  }
  while (next) {
    const rest = next.nextSibling;
    next.remove();
    next = rest;
  }
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

function busy(button, value) {
  button.disabled = value;
  if (value) button.dataset.busy = "1";
  else delete button.dataset.busy;
}

let decide = null;

/** Asks with a dialog, which names the thing and what follows; true when the user confirms. */
function confirmed(text, { title, yes, no } = {}) {
  // The close event of a dialog comes late: another question may have been opened before it.
  decide?.(false);
  byId("confirm-title").textContent = printable(title || texts.sure);
  byId("confirm-text").textContent = printable(text);
  byId("confirm-yes").textContent = printable(yes || texts.yes);
  byId("confirm-no").textContent = printable(no || texts.no);
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
  if (button.dataset.confirm && !(await confirmed(button.dataset.confirm, button.dataset))) return;
  const [method, path] = button.dataset.call.split(" ");
  busy(button, true);
  try {
    const body = button.dataset.body;
    const headers = body ? { "content-type": "application/json" } : {};
    let answer = await fetch(path, { method, headers, body });
    let told = await answer.json().catch(() => ({}));
    if (button.dataset.force && told.error?.reason_code === "DEPENDS_NOT_DONE") {
      // It comes after others that are not done. Only a confirmed start ignores them.
      if (!(await confirmed(`${button.dataset.force} (${told.error.context.unmet.join(", ")})`))) return;
      answer = await fetch(`${path}?force=true`, { method, headers, body });
      told = await answer.json().catch(() => ({}));
    }
    if (!answer.ok) return refused(told.error ?? {}, answer);
    // The API answers actions in English.
    const message = document.documentElement.lang === "en" ? told.message : "";
    say(button.dataset.done || message || texts.done);
    const next = button.dataset.goto && answer.headers.get("location");
    if (next) location.href = next.replace(/^\/api/, "");
  } catch {
    say(texts.liveOff, true);
  } finally {
    busy(button, false);
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
  busy(button, true);
  try {
    const forecast = await ask({ dry_run: true });
    if (!forecast) return;
    if (forecast.moved === 0) return say(texts.bulkNone);
    if (!(await confirmed(filled(question, { n: forecast.moved }), button.dataset))) return;
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
    busy(button, false);
    updateSoon();
  }
}

/** Shows why a call was refused and what to do. A run in progress is linked. */
function refused(error, answer) {
  if (error.reason_code === "QUEUE_IN_PROGRESS") return say(`${texts.queueBusy} — ${(error.actions ?? []).join(" — ")}`, true);
  // A run of another program has no page here.
  if (error.context?.latest_run_url && !error.context.lock_file) {
    location.href = error.context.latest_run_url.replace(/^\/api/, "");
    return;
  }
  say([error.title ?? `${answer.status}`, error.detail ?? error.message, ...(error.actions ?? [])].filter(Boolean).join(" — "), true);
}

// Forms in dialogs ----------------------------------------------------------------------------------------------------

function openForm(dialog) {
  dialog.querySelector(".problem").textContent = "";
  dialog.showModal();
}

/** Sends a form as JSON. An error is shown in the dialog, which stays open with what was written. */
async function send(form, path, body) {
  const problem = form.querySelector(".problem");
  const button = form.querySelector("button.primary");
  busy(button, true);
  try {
    const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    const told = await answer.json().catch(() => ({}));
    if (!answer.ok) {
      const { title, detail, message, hint } = told.error ?? {};
      problem.textContent = printable([title ?? `${answer.status}`, detail ?? message, hint].filter(Boolean).join(" — "));
      return;
    }
    const dialog = form.closest("dialog");
    if (dialog) {
      dialog.close();
      form.reset();
    }
    say(form.dataset.done || texts.done);
    updateSoon();
  } catch {
    problem.textContent = texts.liveOff;
  } finally {
    busy(button, false);
  }
}

function askForAnswer(button) {
  byId("answer-title").textContent = printable(texts.answerTitle.replace("{title}", () => button.dataset.title));
  byId("answer-question").textContent = printable(button.dataset.question);
  byId("answer-form").dataset.path = button.dataset.answer;
  openForm(byId("answer"));
}

byId("answer-form").addEventListener("submit", (event) => {
  event.preventDefault();
  send(event.target, event.target.dataset.path, { answer: byId("answer-text").value });
});
byId("priority-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  send(event.target, event.target.dataset.path, { priority: Number(byId("priority").value) });
});
byId("new-request-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const field = (name) => event.target.elements[name].value.trim();
  const words = (name) => field(name).split(/\s+/).filter(Boolean);
  const body = { command: ["sh", "-c", field("command")], locks: words("locks"), paths: words("paths"), after: words("after"), priority: Number(field("priority")) };
  // The words of the user, not those of the shell.
  body.title = field("title") || field("command").slice(0, 80);
  send(event.target, "/api/requests", body);
});

// Notifications -------------------------------------------------------------------------------------------------------

const notify = byId("notify");
const canNotify = "Notification" in window && window.isSecureContext;
const notifies = () => canNotify && Notification.permission === "granted" && localStorage.getItem("lockkeeper_notify") === "1";
let known = Number(byId("attention").dataset.count);

function showNotify() {
  notify.hidden = !canNotify || Notification.permission === "denied";
  notify.textContent = notifies() ? notify.dataset.off : notify.dataset.on;
  notify.setAttribute("aria-pressed", `${notifies()}`);
}

/** Tells the user when more needs a person than before. */
function noticeAttention() {
  const { count, text } = byId("attention").dataset;
  const now = Number(count);
  if (now > known && notifies() && document.hidden) new Notification("Lockkeeper", { body: text.replace("{n}", now), tag: "lockkeeper" });
  known = now;
}

notify.addEventListener("click", async () => {
  const wanted = !notifies();
  if (wanted && Notification.permission !== "granted") await Notification.requestPermission();
  localStorage.setItem("lockkeeper_notify", wanted ? "1" : "0");
  showNotify();
});
showNotify();

function remember(name, value) {
  document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=strict`;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { call: calls, bulk, answer, open, close, copy } = button.dataset;
  if (bulk) callForAll(button);
  else if (calls) call(button);
  else if (answer) askForAnswer(button);
  else if (open) openForm(byId(open));
  else if (close !== undefined) button.closest("dialog").close();
  else if (copy !== undefined) navigator.clipboard.writeText(copy).then(() => say(texts.copied), () => say(texts.notCopied, true));
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
for (const one of document.querySelectorAll("dialog")) one.addEventListener("close", () => again && update());
// A page that notifies listens on while it is hidden.
document.addEventListener("visibilitychange", () => (document.hidden && !notifies() ? disconnect() : listen()));
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

document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
readClock(document);
tick();
setInterval(tick, 1000);
for (const one of document.querySelectorAll("[data-scroll]")) one.scrollTo(0, one.scrollHeight);
// Not everything is an event: such a page is read again every few seconds while somebody looks at it.
const every = Number(document.querySelector("[data-refresh]")?.dataset.refresh ?? 30);
setInterval(() => (document.hidden && !notifies()) || updateSoon(), every * 1000);
if (document.querySelector("[data-log]")) import("/assets/log.mjs");
if (!document.hidden) listen();
