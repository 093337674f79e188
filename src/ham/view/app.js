// The page: reads what was typed, runs the network, and plays the run. A position is 0 for the
// start and then four phases a timestep: search, read and answer, write, rejoin.
const App = (() => {
  const PHASES = 4;
  const BEAT = 900; // milliseconds of a phase at speed 1
  const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 64];
  const SIZES = [4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const START = 32; // rows of the first input: enough for the counters to part
  const CHANGES_SHOWN = 11;
  const INSIDE_SHOWN = 40;

  const $ = (id) => document.getElementById(id);
  const { count, itemText } = Tasks;

  function element(name, kind, ...children) {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    made.append(...children);
    return made;
  }

  const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

  const data = JSON.parse($("data").textContent);
  const models = new Map();
  const modelled = Tasks.all.filter((each) => data.models.some((model) => model.task === each.name));
  const tasks = [...modelled, ...data.own.map(Tasks.prepared)];
  const taskOf = (name) => tasks.find((each) => each.name === name);
  let task, trace, view, position, applied, values, slots, tallies, tape, history, visitsAt, labels;
  let attacks = { made: 0, held: 0 };
  let playing = false;
  let speed = 1;

  function modelOf(name) {
    if (!models.has(name)) models.set(name, Network.load(data.models.find((model) => model.task === name)));
    return models.get(name);
  }

  // --- asking -------------------------------------------------------------------------------

  function choose(name, text) {
    task = taskOf(name);
    attacks = { made: 0, held: 0 };
    for (const radio of document.getElementsByName("task")) radio.checked = radio.value === name;
    $("about").textContent = task.about;
    $("hint").textContent = `Type ${task.hint}.`;
    $("attack").hidden = !task.attacks;
    $("input").value = text ?? first();
    return ask();
  }

  // The largest input that the task was trained on.
  const trainedOn = () => [...data.models, ...data.own].find((each) => (each.task ?? each.name) === task.name).trained_on;

  // What a task starts with: enough rows for the counters to part, if it was trained on so many.
  const first = () => (trainedOn() < START ? task.example : Tasks.repeatably(() => task.show(task.random(START))));

  const traced = (each, text) => (each.trace ? each.trace(text) : Tasks.trace(each, modelOf(each.name), text));

  // Run what is in the field; false, and a line beside it, if it cannot be read.
  function ask() {
    $("attacked").textContent = "";
    try {
      const made = traced(task, $("input").value);
      complain("");
      begin(made);
      return true;
    } catch (error) {
      if (!(error instanceof Tasks.InputError)) throw error;
      complain(error.message);
      return false;
    }
  }

  function put(question) {
    $("input").value = task.show(question);
    ask();
  }

  // A hard case, and at once whether the network holds.
  function attack() {
    const { family, question } = Tasks.attack(task, Number($("size").value));
    put(question);
    attacks.made++;
    attacks.held += trace.right;
    $("attacked").textContent =
      `Hard case: ${family}. ${trace.right ? "It holds" : "It errs"}; ${count(attacks.held)} of ${plural(attacks.made, "attack")} held.`;
  }

  function complain(message) {
    $("problem").textContent = message && `Cannot run this: ${message}.`;
    $("input").setAttribute("aria-invalid", Boolean(message));
  }

  function begin(made) {
    pause();
    trace = made;
    values = trace.tree.slice();
    applied = 0;
    visitsAt = new Map();
    trace.steps.forEach((step, t) => {
      if (!visitsAt.has(step.leaf)) visitsAt.set(step.leaf, []);
      visitsAt.get(step.leaf).push(t);
    });
    history = task.history ? task.history(trace.question) : null;
    labels = task.labels(trace.question);
    const items = history ? labels.map((label) => label.replace("push ", "+")) : labels;
    view.show(trace, describe, items, task.online);
    const rows = trace.rows.length;
    $("trained").textContent = rows > trainedOn() ? `Longer than all it learned from: trained on up to ${count(trainedOn())}.` : "";
    const small = trace.text === task.example;
    $("smaller").textContent = small ? "Larger tree" : "Small tree";
    $("smaller").hidden = task.example === first();
    $("scrub").max = last();
    $("link").href = linkTo(task, trace.text);
    // A page inside another may have no address of its own to write into.
    if (location.protocol !== "about:") window.history.replaceState(null, "", $("link").href);
    buildTape();
    seek(0);
  }

  // --- links --------------------------------------------------------------------------------

  // #sort=7:1,3:9 carries a task and its input. A blank that a task takes for a comma is one; any
  // other is written _ (and _ itself escaped).
  function linkTo({ name, online, trace: own }, text) {
    const tight = own ? text : text.replace(/\s*([|+?,])\s*/g, "$1");
    const escaped = encodeURIComponent(tight).replaceAll("_", "%5F").replace(/%(3A|2C|7C|3F|2B)/g, decodeURIComponent);
    return `#${name}=${escaped.replaceAll("%20", online || own ? "_" : ",")}`;
  }

  // {name, text} of the page's address, {} if it has none; what makes no sense is an InputError.
  function linked() {
    const [, name, escaped] = location.hash.match(/^#([^=]*)=?([^]*)$/) ?? [];
    if (!name) return {};
    try {
      const text = decodeURIComponent(escaped.replaceAll("_", " "));
      if (taskOf(decodeURIComponent(name))) return { name: decodeURIComponent(name), text: text || undefined };
    } catch (error) {
      if (!(error instanceof URIError)) throw error;
    }
    throw new Tasks.InputError("the link makes no sense to this page; here is an example instead");
  }

  // Open on a task and an input from elsewhere; over an example, if they cannot be read.
  function openOn(find, otherwise) {
    try {
      const { name = otherwise, text } = find();
      if (choose(name, text)) return;
    } catch (error) {
      if (!(error instanceof Tasks.InputError)) throw error;
      complain(error.message);
    }
    const message = $("problem").textContent;
    choose(task?.name ?? otherwise);
    $("problem").textContent = message;
  }

  const last = () => PHASES * trace.steps.length;
  const timestep = () => Math.max(0, Math.ceil(position / PHASES) - 1);
  const phase = () => (position === 0 ? -1 : (position - 1) % PHASES);

  // --- playing ------------------------------------------------------------------------------

  function seek(to, fresh = false) {
    position = Math.max(0, Math.min(last(), to));
    const t = timestep();
    // Whole timesteps first, forwards or backwards; then the phases of this one.
    while (applied < t) for (const change of changesOf(applied++)) values[change.node] = change.after;
    while (applied > t) for (const change of changesOf(--applied)) values[change.node] = change.before;
    const now = values.slice();
    const changes = trace.steps.length ? changesOf(t) : [];
    if (phase() >= 2) now[changes[0].node] = changes[0].after;
    if (phase() === 3) for (const change of changes) now[change.node] = change.after;
    draw(now, fresh);
  }

  const changesOf = (t) => [trace.steps[t].written, ...trace.steps[t].rejoined];

  // On a small screen the tree may be elsewhere when it begins to move.
  function bringTreeIntoSight() {
    const { top, bottom } = $("tree").getBoundingClientRect();
    if (top >= 0 && bottom <= $("controls").getBoundingClientRect().top) return;
    $("stage").scrollIntoView({ block: "start" });
  }

  function play() {
    if (position >= last()) seek(0);
    playing = true;
    document.body.classList.add("playing");
    $("play").setAttribute("aria-label", "Pause");
    $("play-word").textContent = "Pause";
    $("caption").setAttribute("aria-live", "off");
    bringTreeIntoSight();
    let before = performance.now();
    let owed = 1;
    const tick = (time) => {
      if (!playing) return;
      owed += (Math.min(time - before, 250) * speed) / BEAT;
      before = time;
      if (owed >= 1) {
        seek(position + Math.floor(owed), true);
        owed %= 1;
      }
      if (position >= last()) pause();
      else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  function pause() {
    playing = false;
    document.body.classList.remove("playing");
    $("play").setAttribute("aria-label", "Play");
    $("play-word").textContent = "Play";
    $("caption").setAttribute("aria-live", "polite");
  }

  function go(to) {
    pause();
    seek(to, true);
  }

  // To the same phase of another timestep; from the start to the end of the first.
  const jump = (timesteps) => go(position + timesteps * PHASES);

  // --- drawing ------------------------------------------------------------------------------

  function draw(now, fresh) {
    const t = timestep();
    const p = phase();
    const step = trace.steps[t];
    view.paint(now, {
      path: step ? step.path : [1],
      pRight: step ? step.p_right : [],
      phase: p,
      fresh: fresh && (p === 0 || p === 3),
      labels: leafItems,
      visits: (leaf) => visited(leaf).map((time) => time + 1),
      visitedLeaves: () => [...visitsAt.keys()].filter((leaf) => visited(leaf).length),
    });
    $("caption").replaceChildren(...caption(step, t, p));
    for (const item of $("phases").children) item.classList.toggle("now", Number(item.dataset.phase) === p);
    $("scrub").value = position;
    const clock = p < 0 ? "start" : `timestep ${count(t + 1)} of ${count(trace.steps.length)}`;
    $("clock").textContent = clock;
    $("scrub").setAttribute("aria-valuetext", $("caption").textContent);
    $("start").disabled = $("back").disabled = position === 0;
    $("end").disabled = $("step").disabled = position === last();
    drawTape();
    drawWork(t, p);
    drawChanges(step, p);
  }

  // Timesteps so far at which a leaf was accessed.
  function visited(leaf) {
    const until = phase() >= 1 ? timestep() : timestep() - 1;
    return (visitsAt.get(leaf) ?? []).filter((time) => time <= until);
  }

  // Under a leaf: its item; in a data structure, all that was pushed there and is still to come out.
  function leafItems(leaf) {
    if (!task.online) return labels[leaf] ? [labels[leaf]] : [];
    const until = phase() >= 2 ? timestep() : timestep() - 1;
    const times = (visitsAt.get(leaf) ?? []).filter((time) => time <= until);
    if (!history) return times.length ? [labels[times.at(-1)]] : [];
    const inside = new Set(until >= 0 ? history[until].inside : []);
    return times.map((time) => trace.question[time]).filter((item) => inside.has(item)).map((item) => `+${itemText(item)}`);
  }

  function describe(node) {
    const { leaves } = trace;
    const span = leaves >> (31 - Math.clz32(node));
    const start = node * span - leaves;
    const t = timestep();
    const level = phase() >= 0 ? (trace.steps[t]?.path.indexOf(node) ?? -1) : -1;
    const p = level >= 0 ? trace.steps[t].p_right[level] : undefined;
    const label = node >= leaves ? leafItems(node - leaves).join(" ") : "";
    const what = node >= leaves ? `Leaf ${count(start)}${label ? `, ${label}` : ""}` : `${node === 1 ? "Root" : `Node ${count(node)}`}, above leaves ${count(start)} to ${count(start + span - 1)}`;
    const way = p === undefined ? (level >= 0 ? ". Accessed in this timestep" : "") : `. The way goes ${p > 0.5 ? "right" : "left"}: the probability of going right, p(right), is ${p.toFixed(4)}`;
    return `${what}${way}.`;
  }

  function caption(step, t, p) {
    const strong = (words) => element("b", "", words);
    if (!trace.steps.length) return ["There is nothing to do."];
    if (p < 0) {
      return task.online
        ? [`The memory is empty: ${count(trace.leaves)} leaves of zeros. `, strong("Play"), " to feed it the operations one at a time."]
        : [`${plural(labels.length, "item")} in a tree of ${count(trace.leaves)} leaves; every node above was joined from its two children. `, strong("Play"), " to watch."];
    }
    const label = leafItems(step.leaf).join(" ");
    const leaf = `leaf ${count(step.leaf)}`;
    const head = strong(`Timestep ${count(t + 1)}${task.online ? `, ${labels[t]}` : ""}. `);
    if (p === 0) {
      const turns = step.p_right.map((q) => (q > 0.5 ? "right" : "left"));
      const holds = task.online ? "" : label ? `, which holds ${label}` : ", which is empty";
      return [head, `From the root: ${turns.join(", ")}. The network arrives at ${leaf}${holds}.`];
    }
    if (p === 1) return [head, ...said(step)];
    if (p === 2) {
      return [head, `It overwrites ${leaf} with new numbers, its note of what happened there.`];
    }
    const joined = `The ${count(step.rejoined.length)} nodes above are joined again from their children`;
    if (position === last()) return [head, `${joined}. `, strong(finished())];
    return [head, `${joined}; all others stay as they were.`];
  }

  function said(step) {
    const leaf = `leaf ${count(step.leaf)}`;
    const { output } = step;
    if (!output) return [`It reads ${leaf}; the answer comes at a later timestep.`];
    if (output.expected === null) return [`It reads ${leaf}. A push asks for no answer.`];
    const name = (item) => (item === "end" ? "“that was all”" : itemText(item));
    const verdict = output.right ? "right" : itemText(output.item) !== itemText(output.expected) ? `wrong: it should be ${name(output.expected)}` : "wrong in another bit";
    return [`It reads ${leaf} and answers `, element("b", "", name(output.item)), `, which is ${verdict}.`];
  }

  const outputs = () => trace.steps.map((step) => step.output).filter(Boolean);

  function finished() {
    const asked = outputs().filter((output) => output.expected !== null);
    const right = asked.filter((output) => output.right).length;
    if (!asked.length) return "Done; nothing was asked.";
    return trace.right ? `Done: every output is right.` : `Done: ${count(right)} of ${count(asked.length)} outputs are right.`;
  }

  // --- the answer ---------------------------------------------------------------------------

  function buildTape() {
    const head = element("div", "slot head");
    if (task.online) head.append(element("span", "", "operation"));
    head.append(element("span", "", "network"), element("span", "", "truth"));
    slots = outputs().map((output, i) => {
      const slot = element("div", "slot");
      if (task.online) slot.append(element("span", "operation", labels[i]));
      const network = element("span", "said", "");
      const truth = output.expected === null ? "" : itemText(output.expected);
      slot.append(network, element("span", "truth", truth));
      drawSlot({ output, network }, false);
      return { slot, network, output };
    });
    // After so many outputs: how many were asked for, how many of those are right.
    tallies = [{ asked: 0, right: 0 }];
    for (const { output } of slots) {
      const { asked, right } = tallies.at(-1);
      tallies.push({ asked: asked + (output.expected !== null), right: right + Boolean(output.right) });
    }
    tape = { known: 0, current: -1 };
    $("answer-name").textContent = task.online ? "Operations and answers" : "Answer";
    const inOrder = slots.map(({ slot }) => slot);
    $("tape").replaceChildren(head, ...(task.lowestFirst ? inOrder.reverse() : inOrder));
    $("tape").scrollLeft = 0;
    $("inside-box").hidden = !history;
    if (history) $("inside-title").textContent = task.inside;
    $("reading").hidden = !task.reading;
  }

  function drawSlot({ output, network }, shown) {
    const asked = output.expected !== null;
    const kind = !asked ? "unasked" : !shown ? "" : output.right ? "right" : "wrong";
    network.textContent = !shown ? "" : asked ? itemText(output.item) : "–";
    network.className = `said ${kind}`;
    const given = Array.from(output.probabilities, (p) => p.toFixed(3)).join(" ");
    // Of real numbers there are no bits; a page's own task may have such answers.
    network.title = shown && asked ? `${output.bits.length ? "p(bit is 1)" : "outputs"}: ${given}` : "";
    network.setAttribute("aria-label", !shown ? "not yet" : asked ? `${network.textContent}, ${kind}` : "nothing asked");
  }

  function drawTape() {
    const every = trace.steps.findIndex((step) => step.output) + 1; // timesteps an output
    const given = phase() >= 1 ? timestep() + 1 : timestep();
    const known = Math.floor(given / every);
    const current = phase() < 0 ? -1 : Math.floor(timestep() / every);
    if (tape.current >= 0) slots[tape.current]?.slot.classList.remove("now");
    slots[current]?.slot.classList.add("now");
    for (let i = Math.min(known, tape.known); i < Math.max(known, tape.known); i++) drawSlot(slots[i], i < known);
    tape = { known, current };
    const box = $("tape");
    const slot = slots[Math.max(0, current)]?.slot;
    const { asked, right } = tallies[known];
    const all = tallies.at(-1).asked;
    if (slot && (slot.offsetLeft + slot.offsetWidth > box.scrollLeft + box.clientWidth || slot.offsetLeft - 90 < box.scrollLeft)) {
      box.scrollLeft = slot.offsetLeft - box.clientWidth / 2;
    }
    const verdict = $("verdict");
    verdict.textContent = asked ? `${count(right)} of ${count(asked)} right${asked === all ? "" : " so far"}` : "";
    verdict.className = `verdict ${asked ? (right === asked ? "right" : "wrong") : ""}`;
    if (history) {
      const done = phase() >= 2 ? timestep() + 1 : timestep();
      const inside = done ? history[done - 1].inside.map(itemText) : [];
      $("inside").replaceChildren(...insideChips(inside));
    }
    if (task.reading) {
      const said = slots.slice(0, known).map(({ output }) => output.item).filter((item) => item !== "end");
      $("reading").textContent = task.reading(trace.question, known === slots.length ? said : []);
    }
  }

  // A long content is cut at the end that is not next to come out.
  function insideChips(inside) {
    if (!inside.length) return [element("li", "none", "nothing")];
    const hidden = Math.max(0, inside.length - INSIDE_SHOWN);
    const shown = task.outOnRight ? inside.slice(hidden) : inside.slice(0, INSIDE_SHOWN);
    const chips = shown.map((item) => element("li", "", item));
    if (!hidden) return chips;
    const rest = element("li", "none", `${count(hidden)} more`);
    return task.outOnRight ? [rest, ...chips] : [...chips, rest];
  }

  // --- work and changes ---------------------------------------------------------------------

  // The tree touches the path, and the path's siblings when it rejoins; attention every cell.
  const touchedBy = (leaves) => 2 * Math.log2(leaves) + 1;

  const cellsRead = () => (task.online ? trace.leaves : trace.rows.length);

  function drawWork(t, p) {
    const steps = p < 0 ? 0 : t + 1;
    const cells = cellsRead();
    const tree = steps * touchedBy(trace.leaves);
    const attention = steps * cells;
    const most = Math.max(trace.steps.length * Math.max(cells, touchedBy(trace.leaves)), 1);
    $("bar-tree").style.width = `${(100 * tree) / most}%`;
    $("bar-attention").style.width = `${(100 * attention) / most}%`;
    $("work-tree").textContent = plural(tree, "node");
    $("work-attention").textContent = plural(attention, "cell");
    $("work-note").textContent =
      `${touchedBy(trace.leaves)} nodes a timestep (the path, and its siblings to rejoin it), against all ${count(cells)} cells.` +
      (trace.leaves < 1024 ? ` With 1,024 leaves: ${touchedBy(1024)} against 1,024.` : "");
  }

  function drawChanges(step, p) {
    const box = $("changes");
    if (!step || p < 1) {
      box.replaceChildren(element("span", "", "Nothing yet: it is still on its way down."));
      if (p < 0) box.firstChild.textContent = "Nothing yet.";
      return;
    }
    const shown = p === 1 ? [] : p === 2 ? [step.written] : changesOf(timestep()).slice(0, CHANGES_SHOWN);
    const picture = ({ node }, numbers) => TreeView.picture(numbers, 8, view.top(node));
    const made = shown.map((change, i) => {
      const name = i ? (change.node === 1 ? "root, rejoined" : `node ${count(change.node)}, rejoined`) : `leaf ${count(step.leaf)}, written`;
      return element("div", "change",
        element("span", `name ${i ? "joined" : "written"}`, name),
        element("div", "both", picture(change, change.before), "→", picture(change, change.after)));
    });
    if (p === 1) {
      made.push(element("div", "change",
        element("span", "name", `leaf ${count(step.leaf)}, read`),
        element("div", "both", picture(step.written, step.value))));
    }
    box.replaceChildren(...made);
  }

  function showTip(node, entry) {
    const tip = $("tip");
    tip.hidden = !node || !entry;
    if (tip.hidden) return;
    const numbers = view.values[node];
    const table = element("div", "numbers");
    table.style.gridTemplateColumns = `repeat(${TreeView.grid(numbers.length)}, auto)`;
    table.append(...Array.from(numbers, (number) => element("span", "", number.toFixed(2))));
    const [first, ...rest] = describe(node).split(". ");
    tip.replaceChildren(element("p", "", element("strong", "", first)), ...rest.map((line) => element("p", "", line)), table);
    const { scrollLeft, clientWidth } = $("scroller");
    const offset = $("tree").getBoundingClientRect().left - $("scroller").getBoundingClientRect().left + scrollLeft;
    const x = offset + entry.x;
    const { w, h } = view.layout;
    const rightOf = x + w / 2 + 14;
    const fits = rightOf + tip.offsetWidth < scrollLeft + clientWidth;
    const left = fits ? rightOf : Math.max(scrollLeft + 4, x - w / 2 - 14 - tip.offsetWidth);
    tip.style.left = `${left}px`;
    tip.style.top = `${Math.max(2, Math.min(entry.y + h / 2 - tip.offsetHeight / 2, view.layout.height - tip.offsetHeight))}px`;
  }

  // --- wiring -------------------------------------------------------------------------------

  function saveAsSVG() {
    const clock = $("clock").textContent;
    const file = new Blob([TreeView.exported($("tree"), `${task.title}, ${clock}`)], { type: "image/svg+xml" });
    const anchor = element("a");
    anchor.href = URL.createObjectURL(file);
    anchor.download = `ham-${task.name}-${clock.replaceAll(" ", "-")}.svg`;
    anchor.click();
    URL.revokeObjectURL(anchor.href);
  }

  function keys(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || $("race").open) return;
    const typing = event.target.matches("textarea, select, input[type=radio], summary, .tape");
    const onButton = event.target.matches("button");
    if (event.key === "Escape") view.inspect(null);
    if (typing || (onButton && (event.key === " " || event.key === "Enter"))) return;
    const onScrub = event.target === $("scrub");
    const actions = {
      " ": () => (playing ? pause() : play()),
      ArrowRight: () => (event.shiftKey ? jump(1) : go(position + 1)),
      ArrowLeft: () => (event.shiftKey ? jump(-1) : go(position - 1)),
      Home: () => go(0),
      End: () => go(last()),
    };
    if (!(event.key in actions) || (onScrub && !event.shiftKey && event.key !== " ")) return;
    event.preventDefault();
    actions[event.key]();
  }

  function options(select, entries, chosen) {
    select.replaceChildren(
      ...entries.map(([value, words]) => {
        const option = element("option", "", words);
        option.value = value;
        option.selected = value === chosen;
        return option;
      }),
    );
  }

  function start() {
    if (!tasks.length) {
      $("notice").textContent = "This page was made without any trained model: there is nothing to run yet.";
      $("notice").hidden = false;
      $("main").hidden = true;
      return;
    }
    view = new TreeView.View($("tree"), $("scroller"), showTip);
    $("tasks").append(
      ...tasks.map((each) => {
        const radio = element("input");
        Object.assign(radio, { type: "radio", name: "task", value: each.name });
        radio.addEventListener("change", () => choose(each.name));
        return element("label", "", radio, element("span", "", each.title));
      }),
    );
    options($("size"), SIZES.map((size) => [size, `${count(size)}`]), START);
    options($("speed"), SPEEDS.map((each) => [each, `${each}×`]), speed);
    $("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      if (ask()) play();
    });
    $("input").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      $("ask").requestSubmit();
    });
    $("roll").addEventListener("click", () => put(task.random(Number($("size").value))));
    $("attack").addEventListener("click", attack);
    $("smaller").addEventListener("click", () => {
      $("input").value = trace.text === task.example ? first() : task.example;
      ask();
    });
    $("save").addEventListener("click", saveAsSVG);
    $("race-open").addEventListener("click", () => {
      pause();
      $("race").showModal();
      $("race-close").focus();
      Race.start(trace, cellsRead());
    });
    $("race-again").addEventListener("click", () => Race.start(trace, cellsRead()));
    $("race-close").addEventListener("click", () => $("race").close());
    $("race").addEventListener("close", Race.stop);
    addEventListener("hashchange", () => openOn(linked, task.name));
    $("play").addEventListener("click", () => (playing ? pause() : play()));
    $("start").addEventListener("click", () => go(0));
    $("end").addEventListener("click", () => go(last()));
    $("back").addEventListener("click", () => go(position - 1));
    $("step").addEventListener("click", () => go(position + 1));
    $("scrub").addEventListener("input", () => {
      pause();
      seek(Number($("scrub").value));
    });
    $("speed").addEventListener("change", () => {
      speed = Number($("speed").value);
      document.body.style.setProperty("--beat", `${BEAT / speed}ms`);
    });
    document.body.style.setProperty("--beat", `${BEAT}ms`);
    document.addEventListener("keydown", keys);
    new ResizeObserver(() => seek(position)).observe($("scroller"));
    const asked = taskOf(data.start.task)?.name ?? tasks[0].name;
    const given = { name: asked, text: data.start.task === asked ? data.start.input ?? undefined : undefined };
    openOn(() => (location.hash ? linked() : given), asked);
  }

  start();

  // For tests and the console: a trace in the documented format.
  return {
    tasks: tasks.map((each) => each.name),
    trace: (name, text) => traced(taskOf(name), text),
    random: (name, size) => taskOf(name).show(taskOf(name).random(size)),
    attack: (name, size) => {
      const { family, question } = Tasks.attack(taskOf(name), size);
      return { family, text: taskOf(name).show(question) };
    },
    rows: (name, text) => taskOf(name).rows(taskOf(name).parse(text)),
    at: () => ({ task: task.name, position, last: last(), playing, leaves: trace.leaves, text: trace.text }),
    seek: go,
  };
})();
window.ham = App;
