// The page: where every group stands, live, and what can be done about it. Everything that comes from messages is put into
// the page as text, never as markup.

const main = document.getElementById("main");
const state = { session: null, groups: [], source: null, render: null, turn: 0 };

// ── building ──

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

function table(columns, rows, empty) {
  if (!rows.length) return el("p", { class: "quiet" }, empty);
  const head = columns.map(([name, number]) => el("th", { scope: "col", class: number ? "number" : null }, name));
  const body = rows.map((cells) => el("tr", {}, ...cells.map((cell, nth) =>
    el("td", { class: columns[nth][1] ? "number" : null, "data-name": columns[nth][0] }, cell ?? ""))));
  return el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body));
}

function facts(pairs) {
  return el("dl", {}, ...pairs.filter(([, value]) => value != null && value !== "")
    .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function button(text, act, attributes = {}) {
  // A disabled button would lose the focus.
  return el("button", { type: "button", ...attributes, on: { click: async (event) => {
    const pressed = event.currentTarget;
    if (pressed.ariaBusy) return;
    pressed.ariaBusy = "true";
    try { await act(); } catch (error) { toast(error.message); } finally { pressed.ariaBusy = null; }
  } } }, text);
}

const SVG = "http://www.w3.org/2000/svg";

function spark(points, name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 60 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${name}: ${points.map((value) => Math.round(value)).join(", ") || "no history yet"}`);
  if (points.length > 1) {
    const most = Math.max(...points, 1e-9);
    const line = document.createElementNS(SVG, "polyline");
    const at = (value, nth) => `${(nth * 60 / (points.length - 1)).toFixed(1)},${(19 - 18 * value / most).toFixed(1)}`;
    line.setAttribute("points", points.map(at).join(" "));
    svg.append(line);
  }
  return svg;
}

// ── words ──

const count = (number) => Number(number).toLocaleString("en");

function rate(value) {
  if (value == null) return "–";
  return value >= 9.95 ? `${count(Math.round(value))}/s` : value > 0 ? `${Math.max(value, 0.1).toFixed(1)}/s` : "0/s";
}

function span(seconds) {
  if (seconds == null) return "–";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
  return `${Math.floor(seconds / 86400)} d`;
}

const ago = (time) => time ? `${span(Math.max(0, (Date.now() - Date.parse(time)) / 1000))} ago` : "–";

const TONES = { behind: "bad", "no-workers": "bad", paused: "warn", "no-groups": "warn" };
const verdict = (group) =>
  el("span", { class: `verdict ${TONES[group.verdict] ?? "good"}`, title: group.detail }, group.verdict.replaceAll("-", " "));

function payload(message) {
  if (message.payload == null) return `(${message.payload_bytes} bytes, base 64) ${message.payload_base64 ?? ""}`;
  try {
    const meant = JSON.parse(message.payload);
    // Numbers that JavaScript cannot hold, and names that are there twice, are shown as they were sent.
    const isSame = JSON.stringify(meant) === message.payload.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
    return isSame ? JSON.stringify(meant, null, 2) : message.payload;
  } catch { return message.payload; }
}

// ── the server ──

async function call(method, path, body) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (state.session?.csrf) headers["X-Sawmill-CSRF"] = state.session.csrf;
  const response = await fetch(`api/v1/${path}`, {
    method, headers, credentials: "same-origin", body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.status === 401 && path !== "session") { await start(); throw new Error("Log in again."); }
  const text = await response.text();
  let answer = {};
  try { answer = text ? JSON.parse(text) : {}; } catch { /* said below */ }
  if (!response.ok) throw new Error(answer.error ? `${answer.error}: ${answer.what_to_do}` : `The server said ${response.status}.`);
  return answer;
}

const place = (topic, group) => `topics/${encodeURIComponent(topic)}/groups/${encodeURIComponent(group)}`;
const isAdmin = () => state.session?.access === "admin";
const mayLook = () => state.session?.access !== "w";

function watch() {
  state.source?.close();
  const live = (text, isGood = false) => {
    const node = document.getElementById("live");
    node.classList.toggle("good", isGood);
    if (node.textContent !== text) node.textContent = text;
  };
  const source = new EventSource("api/v1/events");
  source.addEventListener("status", (event) => {
    live("live", true);
    state.groups = JSON.parse(event.data).groups;
    state.render?.();
  });
  source.addEventListener("trouble", (event) => { live(JSON.parse(event.data).error); });
  source.addEventListener("error", () => {
    live("connection lost, trying again");
    // It was sent away, and does not try again by itself.
    if (source.readyState === EventSource.CLOSED && state.source === source) setTimeout(restart, 2000);
  });
  state.source = source;
}

// ── telling and asking ──

let toastTimer;
function toast(text) {
  const node = document.getElementById("toast");
  node.textContent = text;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { node.textContent = ""; }, 6000);
}

function ask(title, text, yes) {
  const dialog = document.getElementById("ask");
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-text").textContent = text;
  document.getElementById("ask-yes").textContent = yes;
  return new Promise((resolve) => {
    const end = (answer) => { dialog.close(); resolve(answer); };
    document.getElementById("ask-yes").onclick = () => end(true);
    document.getElementById("ask-no").onclick = () => end(false);
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
    document.getElementById("ask-no").focus();
  });
}

// ── pages ──

const link = (path, text) => el("a", { href: `#/${path}` }, text);
const topicLink = (topic) => link(`topic/${encodeURIComponent(topic)}`, topic);
const deadLink = (group) => group.group == null ? "–" : group.dead === 0 ? "0" :
  el("a", { class: "bad", href: `#/dead/${encodeURIComponent(group.topic)}/${encodeURIComponent(group.group)}` }, count(group.dead));

const GROUP_COLUMNS = [["Topic"], ["Group"], ["Waiting", 1], ["Oldest", 1], ["Claimed", 1], ["Retrying", 1], ["Dead", 1], ["Rate", 1], ["Finished"], ["Workers", 1], ["Verdict"]];

const groupCells = (group) => [
  topicLink(group.topic), group.group ?? "–", count(group.waiting), span(group.oldest_seconds), count(group.claimed),
  count(group.retrying), deadLink(group), rate(group.finished_per_second),
  spark(group.history.map((point) => point.finished_per_second), "finished per second"), count(group.workers), verdict(group),
];

// A press ends on what it began on: what is drawn anew meanwhile would take the click away. The next event draws.
let isPressed = false;
addEventListener("pointerdown", (event) => { isPressed = event.button === 0; }, true);
for (const kind of ["pointerup", "pointercancel", "contextmenu", "dragend", "blur"]) addEventListener(kind, () => { isPressed = false; }, true);

// Drawing anew must not take the focus from whoever uses the keyboard.
function redraw(node, ...children) {
  if (isPressed && node.hasChildNodes()) return;
  const links = () => [...node.querySelectorAll("a")];
  const old = document.activeElement, href = old.getAttribute("href");
  const alike = links().filter((link) => link.getAttribute("href") === href);
  node.replaceChildren(...children);
  if (alike.includes(old)) links().filter((link) => link.getAttribute("href") === href)[alike.indexOf(old)]?.focus({ preventScroll: true });
}

// Who waited for an answer asks whether another page was opened meanwhile.
function turn() {
  const mine = state.turn;
  return () => mine !== state.turn;
}

function overview() {
  const box = el("div", {});
  main.replaceChildren(el("h1", {}, "Overview"), box);
  state.render = () => redraw(box,
    table(GROUP_COLUMNS, state.groups.map(groupCells), "There are no topics yet."),
    ...state.groups.filter((group) => group.detail.includes(";")).map((group) =>
      el("p", { class: "quiet" }, `${group.topic}${group.group ? `, group ${group.group}` : ""}: ${group.detail}`)));
  state.render();
}

async function topicPage(topic) {
  const groups = el("div", {}), waiting = el("div", {});
  main.replaceChildren(el("h1", {}, `Topic ${topic}`), groups, el("h2", {}, "Next messages"), waiting);
  const controls = (group) => el("div", { class: "row" }, el("strong", {}, group.group),
    button(group.paused ? "Resume" : "Pause", async () => {
      await call("POST", `${place(topic, group.group)}/${group.paused ? "resume" : "pause"}`);
      toast(`${group.group} is ${group.paused ? "resumed" : "paused"}.`);
    }),
    button("Replay from the start", async () => {
      const text = `Group ${group.group} of topic ${topic} handles every message again that is still in the log.`;
      if (!await ask("Replay?", text, "Replay")) return;
      const answer = await call("POST", `${place(topic, group.group)}/replay`, { from: "start" });
      toast(`${count(answer.waiting)} messages wait for ${group.group}.`);
    }, { class: "danger" }));
  let shape = "";
  state.render = () => {
    const mine = state.groups.filter((group) => group.topic === topic);
    const acting = isAdmin() ? mine.filter((group) => group.group != null) : [];
    redraw(groups.firstChild ?? groups.appendChild(el("div", {})), table(GROUP_COLUMNS, mine.map(groupCells), "It is not there (any more)."));
    // Buttons stay as they are while nothing of them has changed.
    const now = JSON.stringify(acting.map((group) => [group.group, group.paused]));
    if (now === shape) return;
    shape = now;
    groups.replaceChildren(groups.firstChild, ...acting.map(controls));
  };
  state.render();
  const { messages } = await call("GET", `topics/${encodeURIComponent(topic)}/messages?limit=20`);
  waiting.replaceChildren(table([["Id"], ["Key"], ["Pushed"], ["Payload"]],
    messages.map((message) => [message.id, message.key ?? "", ago(message.pushed_at), payload(message).slice(0, 200)]),
    "Nothing waits for group default."));
}

function workersPage() {
  const box = el("div", {});
  main.replaceChildren(el("h1", {}, "Workers"), box);
  let asking = false;
  state.render = async () => {
    if (asking) return;
    asking = true;
    try {
      const { workers } = await call("GET", "workers");
      const silent = (worker) => worker.last_heartbeat_at && Date.now() - Date.parse(worker.last_heartbeat_at) > 1000 * worker.ttl_seconds;
      const running = workers.flatMap((worker) => worker.running.map((run) => [run.id, topicLink(run.topic), worker.worker, ago(run.since), run.note]));
      redraw(box, table([["Worker"], ["Group"], ["Topics"], ["Concurrency", 1], ["Claimed", 1], ["Last heartbeat"]],
        workers.map((worker) => [worker.worker, worker.group, el("span", {}, ...worker.topics.flatMap((topic, nth) => [nth ? ", " : "", topicLink(topic)])),
          count(worker.concurrency), count(worker.claimed),
          el("span", { class: silent(worker) ? "bad" : null }, ago(worker.last_heartbeat_at) + (silent(worker) ? " (silent)" : ""))]),
        "There are no workers."),
      ...(running.length ? [el("h2", {}, "Running"), table([["Message"], ["Topic"], ["Worker"], ["Started"], ["Note"]], running, "")] : []));
    } catch (error) { toast(error.message); } finally { asking = false; }
  };
  state.render();
}

async function deadPage(topic, group) {
  const box = el("div", {});
  const chosen = new Set();
  const search = el("input", { type: "search", id: "search", placeholder: "Search id, key, payload, reason", "aria-label": "Search dead letters" });
  const decide = async (how, ids) => {
    const what = ids.length === 1 ? "this dead letter" : `${count(ids.length)} dead letters`;
    if (how === "drop" && !await ask("Drop for good?", `Drop ${what} of group ${group} of topic ${topic}. This cannot be undone.`, "Drop")) return;
    await call("POST", `${place(topic, group)}/dead/${how}`, { ids });
    toast(how === "drop" ? `Dropped ${what}.` : `Retried ${what}.`);
    chosen.clear();
    await load();
  };
  const acts = isAdmin() ? [
    button("Retry chosen", () => chosen.size ? decide("retry", [...chosen]) : toast("Choose dead letters first.")),
    button("Drop chosen", () => chosen.size ? decide("drop", [...chosen]) : toast("Choose dead letters first."), { class: "danger" }),
  ] : [];
  const form = el("form", { class: "row", role: "search", on: { submit: (event) => { event.preventDefault(); load().catch((error) => toast(error.message)); } } },
    search, el("button", {}, "Search"), ...acts);
  main.replaceChildren(el("h1", {}, `Dead letters of ${group} in `, topicLink(topic)), form, box);
  let asked = 0;
  async function load() {
    const mine = ++asked;
    const { dead_letters: letters, more } = await call("GET", `${place(topic, group)}/dead?limit=200&search=${encodeURIComponent(search.value)}`);
    // Another search was asked meanwhile.
    if (mine !== asked) return;
    // What is not shown is not chosen.
    for (const id of chosen) if (!letters.some((letter) => letter.id === id)) chosen.delete(id);
    const choose = (letter) => el("input", { type: "checkbox", "aria-label": `Choose ${letter.id}`, checked: chosen.has(letter.id),
      on: { change: (event) => { event.target.checked ? chosen.add(letter.id) : chosen.delete(letter.id); } } });
    const shown = (letter) => link(`dead/${encodeURIComponent(topic)}/${encodeURIComponent(group)}/${letter.id}`, letter.id);
    box.replaceChildren(table([["Choose"], ["Id"], ["Key"], ["Failed", 1], ["Died"], ["Reason"]],
      letters.map((letter) => [choose(letter), shown(letter), letter.key ?? "", count(letter.failed_attempts), ago(letter.died_at), letter.reason.slice(0, 300)]),
      search.value ? "None is found." : "There are no dead letters."), more ? el("p", { class: "quiet" }, "There are more.") : "");
  }
  state.render = null;
  await load();
}

async function letterPage(topic, group, id) {
  state.render = null;
  const isOver = turn();
  const letter = await call("GET", `${place(topic, group)}/dead/${encodeURIComponent(id)}`);
  if (isOver()) return;
  const back = `dead/${encodeURIComponent(topic)}/${encodeURIComponent(group)}`;
  const act = (how, said) => async () => {
    if (how === "drop" && !await ask("Drop for good?", `Drop dead letter ${id}. This cannot be undone.`, "Drop")) return;
    await call("POST", `${place(topic, group)}/dead/${how}`, { ids: [id] });
    toast(said);
    location.hash = `#/${back}`;
  };
  const headers = Object.entries(letter.headers).map(([name, value]) => `${name}: ${value}`).join("\n");
  main.replaceChildren(el("h1", {}, `Dead letter ${id}`),
    facts([["Topic", topicLink(topic)], ["Group", link(back, group)], ["Key", letter.key ?? letter.key_base64], ["Pushed", letter.pushed_at],
      ["Died", letter.died_at], ["Failed", letter.failed_attempts === 1 ? "once" : `${count(letter.failed_attempts)} times`], ["Reason", letter.reason]]),
    ...(isAdmin() ? [el("div", { class: "row" }, button("Retry", act("retry", "Retried.")), button("Drop", act("drop", "Dropped."), { class: "danger" }))] : []),
    el("h2", {}, `Payload (${count(letter.payload_bytes)} bytes)`), el("pre", { id: "payload", tabindex: "0" }, payload(letter)),
    ...(headers ? [el("h2", {}, "Headers"), el("pre", { tabindex: "0" }, headers)] : []),
    el("h2", {}, "Failures"), ...letter.failures.map((failure) => el("div", {},
      el("p", { class: "quiet" }, `Attempt ${failure.attempt}, ${failure.at}, by ${failure.worker}`), el("pre", { tabindex: "0" }, failure.error))));
}

function allDead() {
  const box = el("div", {});
  main.replaceChildren(el("h1", {}, "Dead letters"), box);
  state.render = () => redraw(box, table([["Topic"], ["Group"], ["Dead", 1]],
    state.groups.filter((group) => group.dead > 0).map((group) => [topicLink(group.topic), group.group ?? "–", deadLink(group)]),
    "There are no dead letters."));
  state.render();
}

// A page of its own, for those to whom nothing can be shown.
function bare(title, ...children) {
  state.render = null;
  document.getElementById("nav").replaceChildren();
  const live = document.getElementById("live");
  live.classList.remove("good");
  live.textContent = "";
  document.title = `${title} · Sawmill`;
  main.replaceChildren(el("h1", {}, title), ...children);
}

function pushOnlyPage() {
  bare("This access key is for pushing", el("p", {}, "It allows to push messages, and not to look at anything. Log out, and log in with a key that has access ",
    el("code", {}, "r"), ", ", el("code", {}, "rw"), " or ", el("code", {}, "admin"), "."));
}

function loginPage() {
  const field = el("input", { type: "password", id: "key", autocomplete: "current-password", required: true, "aria-label": "Access key" });
  const form = el("form", { class: "row", on: { submit: async (event) => {
    event.preventDefault();
    try { await call("POST", "session", { key: field.value }); field.value = ""; await start(); } catch (error) { toast(error.message); }
  } } }, field, el("button", {}, "Log in"));
  bare("Log in", el("p", {}, "With an access key from ", el("code", {}, "sawmill key create --access admin")), form);
  field.focus();
}

// ── finding the way ──

const PAGES = [["", "Overview", overview], ["workers", "Workers", workersPage], ["dead", "Dead letters", allDead]];

async function route() {
  state.turn += 1;
  const isOver = turn();
  if (!state.session?.signed_in) return loginPage();
  if (!mayLook()) return pushOnlyPage();
  const parts = location.hash.replace(/^#\/?/, "").split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  const [page, ...rest] = parts;
  document.getElementById("nav").replaceChildren(...PAGES.map(([path, name]) =>
    el("a", { href: `#/${path}`, "aria-current": path === page && !rest.length ? "page" : null }, name)));
  try {
    if (page === "topic" && rest.length === 1) await topicPage(rest[0]);
    else if (page === "dead" && rest.length === 2) await deadPage(...rest);
    else if (page === "dead" && rest.length === 3) await letterPage(...rest);
    else (PAGES.find(([path]) => path === page) ?? PAGES[0])[2]();
  } catch (error) {
    if (isOver()) return;
    state.render = null;
    main.replaceChildren(el("h1", {}, "That did not work"), el("p", {}, error.message));
  }
  if (isOver()) return;
  document.title = `${main.querySelector("h1")?.textContent ?? "Sawmill"} · Sawmill`;
}

async function start() {
  state.source?.close();
  state.session = await call("GET", "session");
  document.getElementById("logout").hidden = !(state.session.signed_in && state.session.needs_key);
  if (state.session.signed_in && mayLook()) watch();
  await route();
}

const restart = () => start().catch(() => setTimeout(restart, 2000));

document.getElementById("logout").addEventListener("click", async () => {
  try { await call("DELETE", "session"); await start(); } catch (error) { toast(error.message); }
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
// Who was faster than the page stays where they went.
addEventListener("hashchange", () => route().then(() => { if (!main.contains(document.activeElement)) main.focus({ preventScroll: true }); }));
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, dialog")) return;
  const search = document.getElementById("search");
  if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
  const page = PAGES[Number(event.key) - 1];
  if (page) location.hash = `#/${page[0]}`;
});
start().catch((error) => { main.replaceChildren(el("p", { class: "bad" }, error.message)); });
