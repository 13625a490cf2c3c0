// Draws the view of a run (dpa/door/view.py): live from /events, or once from the data in the page.
// Every text becomes a text node, so nothing in the data is markup.
"use strict";

let view = {}; // the newest
let link = ""; // what is to be said of the connection; empty while it is good
let isLive = false;
const $ = (id) => document.getElementById(id);
const MOST_ROWS = 500, FOLDED = 64; // a longer table is cut, and folded away

// --- elements

const DRAWN = new Set(["svg", "g", "path", "rect", "text", "title"]);

function el(tag, attributes, ...children) {
  const isDrawn = DRAWN.has(tag) || (tag === "a" && attributes.drawn);
  const made = isDrawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "drawn") continue;
    if (name.startsWith("on")) made[name] = value;
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

// Make `old` equal to `fresh`, and keep what did not change: focus, selection, scrolling, and what is folded open.
function morph(old, fresh) {
  if (old.nodeName !== fresh.nodeName || (old.id ?? "") !== (fresh.id ?? "")) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return undefined;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
  for (const name of ["onclick", "onchange", "onsubmit"]) if (old[name] !== fresh[name]) old[name] = fresh[name];
  const kids = [...fresh.childNodes];
  while (old.childNodes.length > kids.length) old.lastChild.remove();
  kids.forEach((kid, place) => (place < old.childNodes.length ? morph(old.childNodes[place], kid) : old.append(kid)));
  return undefined;
}

function fill(id, ...children) {
  const fresh = $(id).cloneNode(false);
  fresh.append(...children.flat(Infinity).filter(Boolean));
  morph($(id), fresh);
}

// --- words

const isKnown = (value) => value !== undefined && value !== null;
const values = (found) => Object.values(found ?? {});
const entries = (found) => Object.entries(found ?? {});
const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 }); // made once: it takes as long as 50 numbers
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
const count = (number) => (isKnown(number) ? WHOLE.format(number) : "");
const word = (value) => (isKnown(value) ? String(value) : "");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const percent = (part) => (isKnown(part) ? `${(100 * part).toFixed(part && part < 0.0995 ? 1 : 0)}%` : "");
const decimals = (number, digits) => (isKnown(number) ? number.toFixed(digits) : "");

function short(number) {
  if (!isKnown(number)) return "";
  let unit = 0;
  while (Math.abs(number) >= 999.5 && unit < 4) [number, unit] = [number / 1000, unit + 1];
  const digits = number < 10 ? 10 : 1;
  return unit ? number.toPrecision(3) + " kMGT"[unit] : String(Math.round(number * digits) / digits);
}

function seconds(duration) {
  if (!isKnown(duration)) return "";
  if (duration > 0 && duration < 0.0995) return `${Number((1000 * duration).toPrecision(3))} ms`;
  if (duration < 120) return `${duration.toFixed(duration < 9.995 ? 2 : 1)} s`;
  const [hours, minutes, rest] = [duration / 3600, (duration / 60) % 60, duration % 60].map(Math.floor);
  return (hours ? `${hours}:${String(minutes).padStart(2, "0")}` : `${minutes}`) + `:${String(rest).padStart(2, "0")}`;
}

function bytes(size) {
  if (!size) return "";
  return size < 2 ** 20 ? `${(size / 1024).toFixed(1)} KiB` : `${count(size / 2 ** 20)} MiB`;
}

// A time in microseconds since 1970, of UTC.
const instant = (micros) =>
  isKnown(micros) ? new Date(micros / 1000).toISOString().replace("T", " ").replace(/\.?0*Z$/, "") : "";

// --- the address: which stage and section are chosen

const chosen = () => new URLSearchParams(location.hash.slice(1));

function to(changes) {
  const made = chosen();
  for (const [name, value] of Object.entries(changes)) value ? made.set(name, value) : made.delete(name);
  return `#${made}`;
}

// The chosen stage; else the one that limits the run, or the last one. "*" is all of them.
function stageNames() {
  const names = Object.keys(view.stages ?? {}), wanted = chosen().get("stage");
  if (wanted === "*") return names;
  const found = [wanted, view.bottleneck?.stage, names.at(-1)].find((name) => names.includes(name));
  return found === undefined ? [] : [found];
}

// --- parts

// Names, values and remarks; a fact without a value is left out, unless its remark is all that there is to say.
function cards(facts, isWhole = false) {
  const shown = facts.filter(([, value, remark]) => value || (isWhole && remark));
  return el("dl", { class: "cards" }, shown.map(([name, value, remark]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value, remark && el("small", {}, remark)))));
}

const bar = (...parts) => el("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
  parts.map(([first, last, kind]) => {
    const x = 100 * Math.min(Math.max(first, 0), 1);
    return el("rect", { class: kind, x, width: Math.max(100 * Math.min(last, 1) - x, last > first ? 1 : 0), height: 10 });
  }));

const spent = (load) => {
  const [busy, blocked, waiting] = ["busy", "blocked", "waiting"].map((name) => load?.[name] ?? 0);
  return bar([0, busy, "busy"], [busy, busy + blocked, "blocked"], [busy + blocked, busy + blocked + waiting, "waiting"]);
};

// `head`: titles; "#" before one of numbers, "~" before one of sentences. The first cell of a row is its heading.
// Columns without any content are left out.
function table(caption, head, rows, absent) {
  if (!rows.length) return absent ? el("p", { class: "note" }, absent) : "";
  const used = head.map((_, place) => rows.some((row) => row[place] !== "" && isKnown(row[place])));
  const kind = (title) => ({ "#": "n", "~": "words" })[title[0]];
  const cells = (row, tag) => row.map((cell, place) => used[place] && el(place ? tag : "th",
    { class: kind(head[place]), scope: tag === "th" ? "col" : place ? null : "row" }, isKnown(cell) ? cell : ""));
  const made = el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": caption }, el("table", {},
    el("caption", {}, rows.length > MOST_ROWS ? `${caption}: the first ${count(MOST_ROWS)} of ${count(rows.length)}` : caption),
    el("thead", {}, el("tr", {}, cells(head.map((title) => title.replace(/^[#~]/, "")), "th"))),
    el("tbody", {}, rows.slice(0, MOST_ROWS).map((row) => el("tr", {}, cells(row, "td"))))));
  return rows.length > FOLDED ? el("details", {}, el("summary", {}, `${caption}: ${plural(rows.length, "row")}`), made) : made;
}

function section(id, title, ...content) {
  const shown = content.flat(Infinity).filter(Boolean);
  return shown.length && { id, title, content: shown };
}

// --- pictures

const HEIGHT = 190, LEFT = 48, RIGHT = 8, TOP = 8, BOTTOM = 24;
const NARROW = matchMedia("(max-width: 48rem)");

function steps(greatest) {
  const rough = greatest / 3, unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((times) => times * unit >= rough);
  return Array.from({ length: Math.floor(greatest / step + 1e-9) + 1 }, (_, number) => number * step);
}

// `lines`: each with a name and points [x, y]; `marks`: moments with a word. `x` writes a number of the lower axis.
function chart(title, lines, { write = short, x = (at) => `${short(at)} s`, least = 0, marks = [], top } = {}) {
  const points = lines.flatMap((line) => line.points), WIDTH = NARROW.matches ? 380 : 560;
  if (points.length < 2) return "";
  const end = Math.max(...points.map(([at]) => at), least + 1e-9), start = Math.min(least, ...points.map(([at]) => at));
  const high = top ?? Math.max(...points.map(([, value]) => value), 1e-9) * 1.08;
  const px = (at) => (LEFT + ((at - start) / (end - start || 1)) * (WIDTH - LEFT - RIGHT)).toFixed(1);
  const py = (value) => (HEIGHT - BOTTOM - (Math.min(value, high) / high) * (HEIGHT - TOP - BOTTOM)).toFixed(1);
  const look = (number) => `c${number % 8}${number > 7 ? " dashed" : ""}`;
  const last = lines.map((line) => `${line.name ? `${line.name} ` : ""}${write(line.points.at(-1)[1])}`);
  const greatest = write(Math.max(...points.map(([, value]) => value)));
  const said = `${title}: at the end ${last.slice(0, 8).join(", ")}; at most ${greatest}`;
  return el("figure", {}, el("figcaption", {}, title),
    el("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": said },
      steps(high).map((value) => [
        el("path", { class: "grid", d: `M${LEFT},${py(value)}H${WIDTH - RIGHT}` }),
        el("text", { class: "faint", x: LEFT - 6, y: Number(py(value)) + 4, "text-anchor": "end" }, write(value)),
      ]),
      steps(end - start).map((at) => el("text",
        { class: "faint", x: px(start + at), y: HEIGHT - 6, "text-anchor": at ? "middle" : "start" }, x(start + at))),
      marks.map(([at, word]) => el("path", { class: "mark", d: `M${px(at)},${TOP}V${HEIGHT - BOTTOM}` }, el("title", {}, word))),
      lines.map((line, number) => el("path",
        { class: look(number), d: `M${line.points.map(([at, value]) => `${px(at)},${py(value)}`).join("L")}` }))),
    lines.length > 1 && el("ul", { class: "legend" }, lines.map((line, number) => el("li", {},
      el("svg", { class: "key", viewBox: "0 0 10 10", "aria-hidden": "true" }, el("path", { class: look(number), d: "M0,5H10" })),
      line.name))));
}

function charts(name) {
  const moments = entries(view.series?.[name]).map(([at, point]) => [Number(at), point]).sort(([a], [b]) => a - b);
  const line = (label, key) =>
    ({ name: label, points: moments.filter(([, point]) => isKnown(point[key])).map(([at, point]) => [at, point[key]]) });
  const marks = values(view.decisions).filter((each) => each.stage === name && each.outcome === "applied")
    .map((each) => [each.at, `${seconds(each.at)}: ${each.words}`]);
  const tasks = [...new Set(moments.flatMap(([, point]) => Object.keys(point.queues ?? {})))];
  const queues = tasks.map((task) => ({
    name: `task ${task}`,
    points: moments.filter(([, point]) => isKnown(point.queues?.[task])).map(([at, point]) => [at, point.queues[task]]),
  }));
  const spread = ["shortest", "first quarter", "median", "third quarter", "longest"].map((label, place) =>
    ({ name: label, points: moments.filter(([, point]) => point.spread).map(([at, point]) => [at, point.spread[place]]) }));
  const drawn = (...lines) => lines.filter((each) => each.points.length > 1);
  const parts = [line("busy", "busy"), line("blocked", "blocked")];
  return el("div", { class: "charts" }, [
    chart(`Records a second, ${name}`, drawn(line("", "rate")), { marks }),
    !view.stages[name].is_source && [
      chart(`Queues in records, ${name}${marks.length ? "; dotted: redistributions" : ""}`, drawn(...queues, ...spread), { marks }),
      chart(`Skew of the last records, ${name}: 0 is even, 1 is all on one task`, drawn(line("", "skew")),
        { marks, top: 1, write: (value) => value.toFixed(2) }),
    ],
    chart(`Parts of the tasks' time, ${name}`, drawn(...parts), { marks, top: 1, write: percent }),
    keysChart(view.stages[name].key_distribution),
  ]);
}

function keysChart(found) {
  const points = (found?.ranks ?? []).map((rank, place) => [Math.log10(rank), found.cumulative_share[place]]);
  return chart(`Records that the most frequent of ${count(found?.distinct)} keys have`, [{ name: "", points }],
    { top: 1, write: percent, x: (at) => short(10 ** at) });
}

// A box a stage, filled by what its tasks do with their time; from left to right, or downwards on a narrow screen.
function graph() {
  const places = view.layout, tall = NARROW.matches;
  if (!places || !entries(places.stages).length) return "";
  const [wide, high, gap, edge] = [176, 92, tall ? 34 : 64, 6];
  const along = tall ? high : wide, across = tall ? wide : high, spread = tall ? 1.02 : 1;
  const at = (layer, slot, after) => {
    const [main, side] = [edge + layer * (along + gap) + (after ? along : 0), edge + slot * across * spread];
    return tall ? [side, main] : [main, side];
  };
  const most = Math.max(...values(view.edges).map((each) => each.records ?? 0), 1);
  const lines = entries(places.edges).map(([number, path]) => {
    const known = view.edges[number], ends = path.flatMap(([layer, slot], place) => [
      ...(place ? [at(layer, slot, false)] : []), ...(place < path.length - 1 ? [at(layer, slot, true)] : [])]);
    let d = `M${ends[0]}`;
    for (let place = 1; place < ends.length; place += 1) {
      const [a, b] = [ends[place - 1], ends[place]];
      const [x, y] = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
      const bend = tall ? `C${a[0]},${y} ${b[0]},${y} ${b}` : `C${x},${a[1]} ${x},${b[1]} ${b}`;
      d += place % 2 ? bend : `L${b}`;
    }
    const [x, y] = ends.at(-1), tip = tall ? `M${x},${y}l-5,-8h10z` : `M${x},${y}l-8,-5v10z`;
    const width = (1.5 + (5 * (known.records ?? 0)) / most).toFixed(1);
    const said = `${known.source} to ${known.target}: ${plural(known.records ?? 0, "record")}`;
    const line = el("path", { class: `edge${known.blocked ? " held" : ""}`, d, "stroke-width": width }, el("title", {}, said));
    return [line, el("path", { class: "tip", d: tip })];
  });
  const boxes = entries(places.stages).map(([name, [layer, slot]]) => box(name, at(layer, slot, false), wide, high));
  const reach = [...values(places.stages).map(([layer, slot]) => [layer, slot + 1]), ...values(places.edges).flat()];
  const size = at(Math.max(...reach.map(([layer]) => layer)), Math.max(...reach.map(([, slot]) => slot)), true);
  const [width, height] = size.map((length) => length + edge);
  const look = { class: "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Stages" };
  return el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "Graph of the stages" },
    el("svg", look, lines, boxes));
}

function box(name, [x, y], wide, high) {
  const stage = view.stages[name], load = stage.load ?? {}, limits = view.bottleneck?.stage === name;
  const held = (load.blocked ?? 0) >= 0.1, room = wide - 20;
  const words = [
    `${plural(entries(stage.tasks).length, "task")}, ${short(stage.rate ?? 0)}/s`,
    stage.is_source ? `${short(stage.records?.read ?? 0)} rows read` : queueWords(stage),
  ];
  const state = (limits ? "limits the job" : held ? "is held up" : `busy ${percent(load.busy ?? 0)}`)
    + (isKnown(stage.skew) ? `, S ${stage.skew.toFixed(2)}` : "");
  const shares = ["busy", "blocked", "waiting"].map((each) => load[each] ?? 0);
  const text = (row, content, kind) => el("text", { x: x + 10, y: y + 18 + 17 * row, class: kind }, content);
  const isChosen = stageNames().includes(name);
  const before = (place) => room * Math.min(shares.slice(0, place).reduce((sum, part) => sum + part, 0), 1);
  return el("a", {
    drawn: true,
    href: to({ stage: name, section: "stage" }),
    class: `${limits ? "limits" : held ? "held" : ""} ${isChosen ? "chosen" : ""}`,
    "aria-current": isChosen && "true",
    "aria-label": [name, ...words, state, `blocked ${percent(shares[1])}`].join(", "),
  },
  el("title", {}, name),
  el("rect", { class: "box", x, y, width: wide, height: high, rx: 5 }),
  text(0, name.length > 22 ? `${name.slice(0, 21)}…` : name, "name"),
  words.map((each, row) => text(row + 1, each, "faint")),
  text(3, state, limits ? "alarm" : held ? "late" : "faint"),
  el("rect", { class: "room", x: x + 10, y: y + high - 14, width: room, height: 6 }),
  shares.map((part, place) => el("rect", { class: ["busy", "blocked", "waiting"][place], height: 6, y: y + high - 14,
    x: (x + 10 + before(place)).toFixed(1), width: (before(place + 1) - before(place)).toFixed(1) })));
}

function queueWords(stage) {
  if (stage.queue && isKnown(stage.queue_seconds)) return `${seconds(stage.queue_seconds)} in the queue`;
  return isKnown(stage.load?.peak_queue) ? `longest queue ${short(stage.load.peak_queue)}` : `${short(stage.queue ?? 0)} queued`;
}

// --- sections

function facts() {
  if (view.facts) return cards(view.facts, true);
  const records = view.records ?? {}, stages = values(view.stages), made = view.checkpoints;
  const waits = stages.map((stage) => stage.queue_seconds).filter(isKnown);
  const late = stages.map((stage) => stage.latency?.p99).filter(isKnown);
  const left = values(view.errors).reduce((sum, each) => sum + each.records, 0);
  return cards([
    ["processed", `${short(view.rates?.processed ?? 0)}/s`, `${count(records.processed)} records so far`],
    ["input", view.rows ? percent(Math.min(records.read / view.rows, 1)) : `${short(records.read ?? 0)} rows`,
      view.rows ? `${count(records.read)} of ${plural(view.rows, "row")} read` : "read; how many will come is not known"],
    ["queue", waits.length ? seconds(Math.max(...waits)) : "", "of work waits for the slowest stage"],
    ["latency p99", late.length ? seconds(Math.max(...late)) : "", "from source to processed, slowest stage"],
    ["checkpoints", made ? count(made.written) : "", made && `written, ${count(made.failed)} failed, ${bytes(made.size)}`],
    ["restarts", entries(view.recoveries).length ? count(entries(view.recoveries).length) : "", "after deaths of processes"],
    ["left out", left ? count(left) : "", "records on which user code raised"],
  ]);
}

const stageRows = () => entries(view.stages).map(([name, stage]) => [
  el("a", { href: to({ stage: name, section: "stage" }) }, name), count(entries(stage.tasks).length),
  count(stage.is_source ? stage.records?.read : stage.records?.processed), `${short(stage.rate ?? 0)}/s`,
  stage.is_source ? "" : count(stage.queue ?? 0), seconds(stage.queue_seconds), spent(stage.load),
  percent(stage.load?.busy ?? 0), percent(stage.load?.blocked ?? 0), percent(stage.load?.waiting ?? 0),
  decimals(stage.skew, 3), seconds(stage.latency?.p50), seconds(stage.latency?.p95), seconds(stage.latency?.p99),
  seconds(stage.began), seconds(stage.ended)]);
const STAGE_HEAD = ["stage", "#tasks", "#records", "#rate", "#queue", "#in seconds", "time", "#busy", "#blocked", "#waiting",
  "#S", "#p50", "#p95", "#p99", "#began", "#ended"];

const TASK_HEAD = ["#task", "#records", "#share", "", "#queue", "#peak", "time", "#busy", "#blocked", "#waiting", "#forwards",
  "#keys", "#p99", "#processor", "#memory", "#spilled", "node", "#pid"];

function taskRows(stage) {
  const done = (task) => (stage.is_source ? task.read : task.processed) ?? 0, tasks = entries(stage.tasks);
  const all = tasks.reduce((sum, [, task]) => sum + done(task), 0) || 1;
  const most = Math.max(...tasks.map(([, task]) => done(task)), 1);
  const numbers = (name, one) => (tasks.some(([, task]) => task[name]) ? count(one[name] ?? 0) : "");
  return tasks.map(([number, task]) => [
    number, count(done(task)), percent(done(task) / all), bar([0, done(task) / most]),
    stage.is_source ? "" : count(task.queue), numbers("peak_queue", task), spent(task),
    percent(task.busy ?? 0), percent(task.blocked ?? 0), percent(task.waiting ?? 0),
    numbers("forwarded", task), numbers("keys", task), seconds(task.latency_p99), seconds(task.cpu_seconds || null),
    bytes(task.memory_bytes ?? task.peak_memory), bytes(task.spilled), (task.node ?? "").slice(0, 12), word(task.pid)]);
}

function hotKeys(stage) {
  if (stage.is_source) return "";
  const exactly = ({ lower, upper }) => (lower === upper ? "exact" : `${count(lower)} to ${count(upper)}`);
  const between = (each) => (isKnown(each.lower) ? exactly(each) : "");
  const parts = ({ low, high }) => (isKnown(low) ? `${percent(low)} to ${percent(high)}` : "");
  const rows = (stage.hot_keys ?? []).map((each) => [
    each.key, percent(each.share), bar([0, each.share]), count(each.records), parts(each) || between(each),
    word(each.task), each.split ? "split" : "", each.is_hot ? "hot" : ""]);
  const head = ["key", "#share", "", "#records", "#between", "#task", "split", "hot"];
  return table("Most frequent keys", head, rows, 
    isKnown(stage.hot_keys) ? "No key is frequent." : "The strategy of this stage does not look at keys.");
}

const counts = (name) => entries(view.stages[name].decision_counts)
  .map(([outcome, number]) => `${count(number)} ${outcome.replaceAll("_", " ")}`).join(", ");

function ofStage(name) {
  const stage = view.stages[name], decided = counts(name);
  return [
    stageNames().length > 1 && el("h3", {}, name),
    stage.facts?.length > 0 && cards(stage.facts, true),
    charts(name),
    table(`Tasks of ${name}`, TASK_HEAD, taskRows(stage), "No task has started."),
    hotKeys(stage),
    decided && el("p", { class: "note" }, `Decisions about ${name}: ${decided}.`),
  ];
}

function decisions() {
  const quiet = chosen().get("quiet") !== "no", names = stageNames();
  const found = [
    ...values(view.decisions).filter((each) => quiet || each.outcome === "applied"),
    ...values(view.changes).map((each) => ({ ...each, outcome: "tasks changed" })),
  ].filter((each) => names.includes(each.stage)).sort((one, other) => other.at - one.at);
  const rows = found.map((each) => [seconds(each.at), each.stage, `${each.words}: ${each.reason}.`,
    each.outcome.replaceAll("_", " "), seconds(each.seconds), word(each.version), each.loads]);
  const titles = ["#at", "stage", "~what and why", "outcome", "#took", "#table", "queues reported (records)"];
  const toggle = el("a", { href: to({ quiet: quiet ? "no" : "" }) }, quiet ? "Hide decisions not to act" : "Show decisions not to act");
  const counted = names.map((name) => counts(name)).filter(Boolean).join("; ");
  return [el("p", {}, toggle), table(`Decisions about ${names.join(", ")}, the newest first`, titles, rows,
    counted ? `No keys moved. Decisions: ${counted}.` : view.facts ? "Nothing was decided." : "Nothing was decided yet.")];
}

function eventTime() {
  const stages = entries(view.stages);
  const lags = stages.flatMap(([name, stage]) => entries(stage.lag).map(([part, lag]) => [name, part, lag]));
  const rows = stages.filter(([, { event_time: time }]) => time).map(([name, { event_time: time }]) =>
    [name, instant(time.watermark) || "unknown", instant(time.closed), instant(time.opens), time.holder]);
  lags.sort(([, , one], [, , other]) => (other.records ?? 0) - (one.records ?? 0));
  return [
    table("Lag by partition, the greatest first", ["source", "partition", "#records behind", "#seconds behind"],
      lags.map(([name, part, lag]) => [name, part, count(lag.records), seconds(lag.seconds)])),
    table("Watermarks", ["stage", "watermark (UTC)", "windows closed until", "first open window ends", "~held by"], rows),
  ];
}

function checkpoints() {
  const made = view.checkpoints, ended = view.epochs ?? {}, phases = entries(ended.phases), open = ended.open ?? {};
  const mean = ended.number ? ended.seconds / ended.number : null;
  return [
    made && cards([
      ["written", count(made.written), `${count(made.failed)} failed`],
      ["age", seconds(made.age), "since the newest was complete"],
      ["duration", seconds(made.duration), "of the newest, from its cut on"],
      ["size", bytes(made.size), "in all"],
      ["sources waited", seconds(made.waited), "for cuts, in all"],
      ["input saved", count(made.read), "rows before the newest"]]),
    ended.number ? cards([
      ["epochs", count(ended.number), `sources waited ${seconds(mean)} each, ${seconds(ended.longest)} at most`],
      ["visible after", seconds(ended.visible_after), "from the reading of a row until readers see it"],
      ["waited for", ended.waited_for?.task, ended.waited_for && `until it had ${ended.waited_for.what}`],
      ["open epoch", word(open.number), isKnown(open.number) && `began ${seconds(open.age)} ago`],
      ["commit", seconds(open.commit_seconds || null), isKnown(open.committed) && `of epoch ${count(open.committed)}, the newest`]]) : "",
    table("The last checkpoints, the newest first", ["#cut at", "#took", "#size", "~error"],
      values(made?.tries).sort((one, other) => other.at - one.at)
        .map((each) => [seconds(each.at), seconds(each.seconds), bytes(each.size), each.error ?? ""])),
    table("Where the time of epochs went", ["phase", "#a row", "#an epoch", "#longest"],
      phases.map(([name, { row, mean: each, longest }]) => [name, row ? seconds(row) : "", seconds(each), seconds(longest)])),
    phases.length > 0 && el("p", { class: "note" }, "A row: from its reading until readers see it, in the mean. "
      + "An epoch: in the mean of those that had the phase. What a row waits for before it is read is not known."),
  ];
}

const recoveries = () => table("Restarts of the job",
  ["#generation", "#after", "died", "node", "#rows again", "#begun", "#restored", "#flowed", "~cause"],
  values(view.recoveries).map((each) => [word(each.generation), seconds(each.at), each.task, each.node, count(each.rows),
    seconds(each.begun), seconds(each.restored), seconds(each.seconds), each.cause]));

const errors = () => [
  table("Records that were left out", ["step", "error", "#records", "kept as", "~example"], values(view.errors).map((each) =>
    [each.step, each.error, count(each.records), each.kept ? "dead letters" : "skipped", each.example])),
  view.dead_letters && entries(view.errors).length ? el("p", { class: "note" }, `Dead letters are in ${view.dead_letters}.`) : ""];

function costs() {
  const rows = entries(view.stages).map(([name, stage]) => {
    const tasks = values(stage.tasks), sum = (read) => tasks.reduce((all, task) => all + (read(task) ?? 0), 0);
    const memory = tasks.map((task) => task.memory_bytes ?? task.peak_memory ?? 0);
    const processor = sum((task) => task.cpu_seconds), done = stage.records?.[stage.is_source ? "read" : "processed"];
    return processor && [name, seconds(processor), done ? `${((1e6 * processor) / done).toPrecision(3)} µs` : "",
      bytes(Math.max(...memory)), bytes(memory.reduce((all, each) => all + each, 0)), bytes(sum((task) => task.spilled))];
  });
  return table("What each stage costs; by task in its section",
    ["stage", "#processor", "#a record", "#memory, greatest task", "#all tasks", "#spilled"], rows.filter(Boolean));
}

const ofTheReport = () => [
  (view.tables ?? []).map((each) => section(`t-${each.title}`.replace(/\W+/g, "-"), each.title,
    table(each.caption, each.head.map((title) => title || " "), each.rows.map((row) => row.map((cell) =>
      (Array.isArray(cell) ? bar(cell) : cell)))), each.note && el("p", { class: "note" }, each.note))),
  section("configuration", "Configuration", view.config && el("pre", { tabindex: 0 }, view.config)),
  section("versions", "Versions", table("Packages", ["package", "version"], entries(view.versions))),
];

function sections() {
  const names = stageNames(), problem = view.job?.error;
  return [
    section("overview", "Overview", problem && el("pre", { class: "error" }, problem), facts()),
    section("differences", "Differences from the reference",
      view.differences?.length && el("pre", { class: "error" }, view.differences.join("\n"))),
    section("graph", "Graph", view.bottleneck && el("p", {}, view.bottleneck.reason), graph(), view.layout && legend()),
    section("stages", "Stages", view.stages &&
      table(view.facts ? "The whole run" : "The last seconds", STAGE_HEAD, stageRows(), "No stage has started.")),
    section("stage", names.length > 1 ? "All stages" : `Stage ${names[0] ?? ""}`, choice(), names.map(ofStage)),
    section("decisions", "Decisions", names.length && decisions()),
    section("lag", "Lag and event time", eventTime()),
    section("checkpoints", "Checkpoints and epochs", checkpoints()),
    section("recoveries", "Deaths and recoveries", recoveries()),
    section("errors", "Errors and dead letters", errors()),
    section("costs", "Cost", costs()),
    section("warnings", "Warnings", entries(view.warnings).length && el("pre", { tabindex: 0 }, values(view.warnings).join("\n"))),
    isLive && section("control", "Control", control()),
    ofTheReport(),
  ].flat(Infinity).filter(Boolean);
}

const legend = () => el("p", { class: "note" }, ["busy", "blocked", "waiting"].map((name) => [
  el("svg", { class: "key", viewBox: "0 0 10 10", "aria-hidden": "true" }, el("rect", { class: name, width: 10, height: 10 })), `${name}  `]),
"Heavy frame: limits the job. Dashed frame: held up by what comes after it. Wide arrow: many records.");

function choice() {
  const names = Object.keys(view.stages ?? {}), now = stageNames();
  const item = (name, label) => el("li", {}, el("a", { href: to({ stage: name, section: "stage" }),
    "aria-current": now.length === (name === "*" ? names.length : 1) && (name === "*" || now[0] === name) && "true" }, label));
  return names.length > 1 && el("ul", { class: "stages" }, names.map((name) => item(name, name)), item("*", "all"));
}

// --- control

function control() {
  const names = Object.keys(view.stages ?? {}), read = (name) => new FormData($("change")).get(name);
  const of = (name) => ({ stage: read("stage"), ...(read("nodes") ? { nodes: read("nodes").split(/[\s,]+/) } : {}), ...name });
  const tasks = () => read("tasks").split(/[\s,]+/).filter(Boolean).map(Number);
  const button = (label, question, request) =>
    el("button", { type: "button", onclick: () => ask(typeof question === "function" ? question() : question, label, request) }, label);
  return [
    el("form", { id: "change", onsubmit: (event) => event.preventDefault() },
      el("label", {}, "Stage", el("select", { name: "stage" }, names.map((name) => el("option", { value: name }, name)))),
      el("label", {}, "Tasks: how many, or which", el("input", { name: "tasks", inputmode: "numeric", value: "1", size: 12 })),
      el("label", {}, "Nodes (optional)", el("input", { name: "nodes", size: 16 })),
      button("Scale", () => `Have ${read("stage")} have ${plural(tasks()[0], "task")}?`, () => ({ scale: of({ tasks: tasks()[0] }) })),
      button("Move", () => `Have new tasks take the places of ${tasks().join(", ")} of ${read("stage")}?`,
        () => ({ move: of({ tasks: tasks() }) })),
      button("Cancel change", () => `Cancel the changes of ${read("stage")} that wait?`,
        () => ({ cancel: { stage: read("stage") } }))),
    el("p", {},
      button("Finish", "Close the open inputs? The job processes what has come, publishes its results, and ends.",
        () => ({ finish: {} })), " ",
      button("Stop", "End the job after a last checkpoint? It publishes nothing more, and can be resumed.", () => ({ stop: {} })), " ",
      button("Cancel job", "End the job now? It publishes nothing more.", () => ({ cancel: {} }))),
  ];
}

function ask(question, label, request) {
  const dialog = $("confirm");
  $("question").textContent = question;
  $("yes").textContent = label;
  dialog.returnValue = "no";
  dialog.onclose = () => dialog.returnValue === "yes" && send(label, request());
  dialog.showModal();
}

async function send(label, request) {
  say(`${label}: waiting for the job.`);
  try {
    const answer = await door("control", { method: "POST", body: JSON.stringify(request) });
    const text = await answer.text();
    say(`${label}: ${answer.ok ? JSON.parse(text).text : text}`);
  } catch (error) {
    say(`${label}: the job did not answer (${error.message}).`);
  }
}

let answered = "";

function say(text) {
  answered = text;
  render();
}

// --- the whole

function head() {
  const job = view.job ?? {}, kind = { ok: "good", running: "good", compared: "good" }[job.status] ?? "bad";
  const about = [job.status === "running" ? view.phase : "", seconds(view.at),
    job.backend === "local" ? "in one process" : job.backend, job.generation ? `generation ${job.generation}` : "", job.run ?? ""];
  document.title = `${job.name ?? "dpa"}: ${job.status ?? "starting"}`;
  return [el("h1", {}, job.name ?? "dpa"), el("span", { class: kind }, job.status ?? "starting"),
    el("span", { class: "note" }, about.filter(Boolean).join(" · ")),
    view.began && el("span", { class: "note" }, `began ${MOMENT.format(1000 * view.began)}`)];
}

function render() {
  const found = sections(), here = chosen().get("section");
  fill("head", head());
  fill("said", [link, answered].filter(Boolean).join(" "));
  fill("contents", el("ul", {}, found.map(({ id, title }) =>
    el("li", {}, el("a", { href: to({ section: id }), "aria-current": id === here && "true" }, title)))));
  fill("main", found.map(({ id, title, content }) => el("section", { id, "aria-labelledby": `h-${id}` },
    el("h2", { id: `h-${id}`, tabindex: -1 }, title), content)));
}

function go() {
  render();
  const heading = $(`h-${chosen().get("section")}`);
  heading?.scrollIntoView();
  heading?.focus({ preventScroll: true });
}

// A merge patch (RFC 7396).
function patched(document_, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const made = document_ !== null && typeof document_ === "object" && !Array.isArray(document_) ? { ...document_ } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete made[name];
    else made[name] = patched(made[name], value);
  }
  return made;
}

// The token comes in the part of the address that browsers send to nobody. The tab keeps it, and the address loses it.
function keepToken() {
  const made = chosen(), given = made.get("token");
  if (given) sessionStorage.setItem("token", given);
  made.delete("token");
  if (given) history.replaceState(null, "", `#${made}`);
  return Boolean(given);
}

const door = (path, more) =>
  fetch(path, { ...more, headers: { Authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` } });

async function listen() {
  const answer = await door("events").catch(() => null);
  const reader = answer?.ok && answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; reader;) {
    const { value, done } = await reader.read().catch(() => ({ done: true }));
    if (done) break;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    events.forEach(take);
  }
  if (!isLive) return;
  isLive = answer?.status !== 401;
  link = isLive ? "No connection to the job: it may have ended. Trying again." : await answer.text();
  render();
  if (isLive) setTimeout(listen, 1000);
}

function take(event) {
  const [, kind, data] = /^event: (\w+)\ndata: (.*)$/.exec(event) ?? [];
  if (kind === "end") {
    isLive = false;
    sessionStorage.removeItem("token"); // the port may become another program's
    link = `The job has ended${view.job?.status === "running" ? "" : `: ${view.job?.status}`}.`;
    render();
  } else if (kind) {
    const next = kind === "view" ? JSON.parse(data) : patched(view, JSON.parse(data));
    const isFirst = !isKnown(view.job), restarted = !isFirst && next.job?.generation > view.job.generation;
    view = next;
    link = "";
    if (restarted) answered = `The job restarted: generation ${next.job.generation} has begun, and its counts start from zero.`;
    if (isFirst) go(); // to the section that the address names
    else if (!document.hidden) render();
  }
}

const given = $("data");
isLive = given === null;
if (isLive) keepToken(), listen();
else view = JSON.parse(given.textContent);
addEventListener("hashchange", () => (given === null && keepToken() ? location.reload() : go()));
addEventListener("visibilitychange", () => document.hidden || render());
NARROW.addEventListener("change", render);
go();
