// Keeps a page up to date: it listens to the events, and shows anew what the server draws. All text that others wrote
// arrives as text, never as markup of ours.

const byId = (id) => document.getElementById(id);
const texts = byId("texts").dataset;
const dialog = byId("confirm");

// What moves with the clock -------------------------------------------------------------------------------------------

/** As the server writes spans. */
function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d > 0) return `${d}d ${h}h`;
  if (h > 0) return `${h}h ${m}m`;
  if (m > 0) return `${m}m ${s % 60}s`;
  return `${s}s`;
}

// The server's clock counts: ours may be wrong.
let ahead = 0;
function readClock(root) {
  const drawn = Number(root.querySelector("[data-now]")?.dataset.now);
  if (drawn) ahead = drawn - Date.now();
}

function tick() {
  const now = Date.now() + ahead;
  for (const one of document.querySelectorAll("time[data-since]")) one.textContent = span(now - one.dataset.since);
  for (const one of document.querySelectorAll("time[data-until]")) one.textContent = span(one.dataset.until - now);
}

// What changes --------------------------------------------------------------------------------------------------------

let drawing = false;
let again = false;
let timer = 0;

/** Draws soon; many events at once are one drawing, and events that never end do not put it off. */
function drawSoon() {
  timer ||= setTimeout(() => {
    timer = 0;
    draw();
  }, 120);
}

async function draw() {
  if (drawing || dialog.open) {
    again = true;
    return;
  }
  drawing = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.ok) replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The stream tells that the server is gone.
  }
  drawing = false;
  if (again) {
    again = false;
    drawSoon();
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

// The stream ----------------------------------------------------------------------------------------------------------

let stream = null;
let last = "";

function listen() {
  if (stream) return;
  stream = new EventSource(last ? `/api/events?last_event_id=${encodeURIComponent(last)}` : "/api/events");
  for (const name of ["hello", "reset", ...texts.topics.split(" ")]) {
    stream.addEventListener(name, (event) => {
      last = event.lastEventId || last;
      drawSoon();
    });
  }
  stream.onopen = () => state("on", texts.liveOn);
  stream.onerror = () => state("off", texts.liveOff);
}

// A browser keeps few connections to one server: pages that nobody looks at give theirs back.
function hush() {
  stream?.close();
  stream = null;
}

function state(value, text) {
  const shown = byId("live");
  shown.dataset.liveState = value;
  shown.textContent = text;
}

// What a person does --------------------------------------------------------------------------------------------------

function say(text, bad) {
  const line = document.createElement("div");
  line.textContent = text;
  if (bad) line.className = "bad";
  byId("said").append(line);
  setTimeout(() => line.remove(), bad ? 12000 : 6000);
  return line;
}

/** A text with numbers in it. */
function filled(text, values) {
  return text.replace(/\{(\w)\}/g, (_, name) => values[name].toLocaleString(document.documentElement.lang));
}

let decide = null;

/** Asks with a dialog; true when the person wants it. */
function confirmed(text) {
  // A dialog closes at once, and says so later: by then another question may have been asked.
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
  if (again) draw();
}

async function call(button) {
  if (button.dataset.confirm && !(await confirmed(button.dataset.confirm))) return;
  const [method, path] = button.dataset.call.split(" ");
  button.disabled = true;
  try {
    const body = button.dataset.body;
    const headers = body ? { "content-type": "application/json" } : {};
    const answer = await fetch(path, { method, headers, body });
    const told = await answer.json().catch(() => ({}));
    if (!answer.ok) return refused(told.error ?? {}, answer);
    say(button.dataset.done || told.message || texts.done);
    const next = button.dataset.goto && answer.headers.get("location");
    if (next) location.href = next.replace(/^\/api/, "");
  } catch {
    say(texts.liveOff, true);
  } finally {
    button.disabled = false;
    drawSoon();
  }
}

/** Does something to all that match: first asks the server how many those are, then the person, then part by part. */
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
    // What came after the question was asked is not meant by the answer.
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
    drawSoon();
  }
}

/** A refusal says why and what to do; the one about a run in progress leads to that run. */
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
document.addEventListener("visibilitychange", () => (document.hidden ? hush() : listen()));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(input|select|textarea)$/i.test(event.target.tagName)) return;
  const field = document.querySelector(`[data-focus-key="${CSS.escape(event.key)}"]`);
  if (field) {
    event.preventDefault();
    field.focus();
  }
  document.querySelector(`.tabs a[data-key="${CSS.escape(event.key)}"]`)?.click();
});

readClock(document);
tick();
setInterval(tick, 1000);
for (const one of document.querySelectorAll("[data-scroll]")) one.scrollTo(0, one.scrollHeight);
if (document.querySelector("[data-log]")) import("/assets/log.mjs");
if (!document.hidden) listen();
