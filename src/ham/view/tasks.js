// The tasks as a person sees them: reading a question, the rows the network gets, the oracle,
// random questions and hard ones. The same as ham/tasks in Python, and tested against it. Nothing
// here draws.
const Tasks = (() => {
  class InputError extends Error {}

  const MOST_ROWS = 1024;
  const words = (text) => text.split(/[\s,]+/).filter(Boolean);
  const quoted = (word) => `“${word.length > 24 ? `${word.slice(0, 24)}…` : word}”`;
  const count = (number) => number.toLocaleString("en"); // the one way to write thousands
  let chance = Math.random;
  const below = (n) => Math.floor(chance() * n);
  const times = (n, make) => Array.from({ length: n }, (_, i) => make(i));
  const ascending = (a, b) => a - b;
  const shuffled = (n) => {
    const picks = times(n, (i) => i);
    for (let i = 0; i < n; i++) {
      const j = i + below(n - i);
      [picks[i], picks[j]] = [picks[j], picks[i]];
    }
    return picks;
  };
  const fail = (message) => {
    throw new InputError(message);
  };

  function integer(word) {
    if (!/^[+-]?\d+$/.test(word)) fail(`expected a whole number, got ${quoted(word)}`);
    return Number(word);
  }

  function real(word) {
    if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(word)) fail(`expected a number, got ${quoted(word)}`);
    return Number(word);
  }

  function pair(word, first = integer) {
    const colon = word.indexOf(":");
    if (colon < 0) fail(`expected two numbers such as 7:1, got ${quoted(word)}`);
    return [first(word.slice(0, colon)), integer(word.slice(colon + 1))];
  }

  function inRange(value, bits, what) {
    const most = 2 ** bits - 1;
    if (!(value >= 0 && value <= most)) fail(`${what} must be between 0 and ${most}, got ${value}`);
  }

  function some(items, what) {
    if (!items.length) fail(`give at least one ${what}`);
    return items;
  }

  const bitsOf = (number, width) => times(width, (i) => Math.floor(number / 2 ** (width - 1 - i)) % 2);
  const numberOf = (bits) => bits.reduce((sum, bit) => 2 * sum + bit, 0);
  const itemText = (item) => (Array.isArray(item) ? item.join(":") : String(item));

  // The same rolls every time, for the input that the page starts with.
  function repeatably(make) {
    let state = 1;
    chance = () => (state = (state * 48271) % 2147483647) / 2147483647;
    try {
      return make();
    } finally {
      chance = Math.random;
    }
  }

  // Lists of n numbers below `most` that are hard for something that learned from random ones.
  const hardNumbers = {
    "all equal": (n, most) => new Array(n).fill(below(most)),
    "two keys": (n, most) => {
      const two = [below(most), below(most)];
      return times(n, () => two[below(2)]);
    },
    "sorted already": (n, most) => times(n, () => below(most)).sort(ascending),
    "sorted backwards": (n, most) => times(n, () => below(most)).sort(ascending).reverse(),
    "sorted runs": (n, most) => times(Math.ceil(n / 4), () => hardNumbers["sorted already"](4, most)).flat().slice(0, n),
  };

  // The same families for a task, given how it makes a question of a list.
  const hardCases = (most, question) =>
    Object.fromEntries(
      Object.entries(hardNumbers).map(([family, list]) => [family, (n) => question(list(n, most))]),
    );

  // A hard question of at most n rows: {family, question}.
  function attack(task, n) {
    const families = {
      ...task.attacks,
      "full to the last leaf": () => task.random(n),
      "as short as can be": () => task.random(task.fewest),
    };
    const names = Object.keys(families);
    const family = names[below(names.length)];
    const rows = Math.max(task.fewest, n - below(n / 2));
    return { family, question: families[family](rows) };
  }

  // What most tasks share; each below says what differs.
  const common = {
    ends: true,
    online: false,
    fewest: 1, // rows of the smallest question
    answerItem: numberOf,
    showAnswer: (items) => items.map(itemText).join(" "),
    // Each output symbol: the oracle's item, or null where nothing is asked.
    expected(question) {
      return [...this.solve(question), ...(this.ends ? ["end"] : [])];
    },
  };

  function numbers(name, bits, solve, more) {
    return {
      ...common,
      name,
      answerBits: bits,
      hint: `whole numbers from 0 to ${2 ** bits - 1}, with blanks between them`,
      parse(text) {
        const items = some(words(text).map(integer), "number");
        items.forEach((item, i) => inRange(item, bits, `item ${i + 1}`));
        return items;
      },
      rows: (items) => items.map((item) => bitsOf(item, bits)),
      labels: (items) => items.map(String),
      solve,
      show: (items) => items.join(" "),
      random: (n) => times(n, () => below(2 ** bits)),
      attacks: hardCases(2 ** bits, (items) => items),
      ...more,
    };
  }

  const reverse = numbers("reverse", 10, (items) => items.toReversed(), {
    title: "Reverse",
    about: "Say the input backwards.",
    example: "3 14 159 265 358 979 323 846",
  });

  const sort4 = numbers("sort4", 4, (items) => items.toSorted(ascending), {
    title: "Sort, small",
    about: "Sort small numbers: the paper’s own example.",
    example: "0 14 13 14 9 5 7 13",
  });

  const sort = {
    ...common,
    name: "sort",
    title: "Sort",
    about: "Sort key:value pairs by key; pairs with equal keys keep their order.",
    hint: "key:value pairs, both from 0 to 31, with blanks between them",
    example: "7:1 3:9 7:2 25:4 0:8 12:30 3:5 18:6",
    answerBits: 10,
    parse(text) {
      const pairs = some(words(text).map((word) => pair(word)), "key:value pair");
      pairs.forEach(([key], i) => inRange(key, 5, `key ${i + 1}`));
      pairs.forEach(([, value], i) => inRange(value, 5, `value ${i + 1}`));
      return pairs;
    },
    rows: (pairs) => pairs.map(([key, value]) => [...bitsOf(key, 5), ...bitsOf(value, 5)]),
    labels: (pairs) => pairs.map(itemText),
    solve: (pairs) => pairs.toSorted((a, b) => a[0] - b[0]),
    answerItem: (bits) => [numberOf(bits.slice(0, 5)), numberOf(bits.slice(5))],
    show: (pairs) => pairs.map(itemText).join(" "),
    random: (n) => times(n, () => [below(32), below(32)]),
    attacks: hardCases(32, (keys) => keys.map((key) => [key, below(32)])),
  };

  const asking = (keys, query) => ({ pairs: keys.map((key) => [key, below(32)]), query });

  const search = {
    ...common,
    name: "search",
    title: "Search",
    about: "Find the value of the asked key among sorted pairs, in two looks.",
    hint: "key:value pairs sorted by key, a question mark, and the key to look up",
    example: "1:5 3:7 8:21 9:2 15:30 22:11 29:4 ? 15",
    answerBits: 5,
    ends: false,
    fewest: 2,
    parse(text) {
      const mark = text.indexOf("?");
      if (mark < 0) fail("expected pairs, a question mark and a key, as in 1:5 3:7 9:2 ? 3");
      const pairs = words(text.slice(0, mark)).map((word) => pair(word));
      const query = integer(text.slice(mark + 1).trim());
      some(pairs, "key:value pair");
      pairs.forEach(([key], i) => inRange(key, 5, `key ${i + 1}`));
      pairs.forEach(([, value], i) => inRange(value, 5, `value ${i + 1}`));
      pairs.forEach(([key], i) => {
        if (i && key < pairs[i - 1][0]) {
          fail(`keys must be sorted, but key ${i + 1}, ${key}, comes after ${pairs[i - 1][0]}`);
        }
      });
      inRange(query, 5, "the query");
      if (!pairs.some(([key]) => key === query)) fail(`the query must be one of the keys, got ${query}`);
      return { pairs, query };
    },
    rows: ({ pairs, query }) => [
      ...pairs.map(([key, value]) => [...bitsOf(key, 5), ...bitsOf(value, 5), 0]),
      [...bitsOf(query, 5), 0, 0, 0, 0, 0, 1],
    ],
    labels: ({ pairs, query }) => [...pairs.map(itemText), `?${query}`],
    solve: ({ pairs, query }) => [pairs.find(([key]) => key === query)[1]],
    show: ({ pairs, query }) => `${pairs.map(itemText).join(" ")} ? ${query}`,
    random(n) {
      const keys = times(n - 1, () => below(32)).sort(ascending);
      return asking(keys, keys[below(n - 1)]);
    },
    attacks: {
      "all keys equal": (n) => {
        const keys = hardNumbers["all equal"](n - 1, 32);
        return asking(keys, keys[0]);
      },
      "two keys": (n) => {
        const keys = hardNumbers["two keys"](n - 1, 32).sort(ascending);
        return asking(keys, keys.at(-1));
      },
      "runs of equal keys": (n) => {
        const keys = times(n - 1, (i) => (i >> 2) % 32).sort(ascending);
        return asking(keys, keys[below(n - 1)]);
      },
      "the first key": (n) => {
        const keys = hardNumbers["sorted already"](n - 1, 32);
        return asking(keys, keys[0]);
      },
      "the last key": (n) => {
        const keys = hardNumbers["sorted already"](n - 1, 32);
        return asking(keys, keys.at(-1));
      },
    },
  };

  const GRID = 300;
  const gridFor = (n) => GRID * Math.ceil(n / GRID);
  // Two sequences of values at these places of the grid.
  const merging = (grid, ...parts) =>
    parts.map((places) =>
      places
        .sort(ascending)
        .map((place) => [Number(((place + 1) / grid).toFixed(grid > GRID ? 5 : 3)), below(32)]),
    );

  const merge = {
    ...common,
    name: "merge",
    title: "Merge",
    about: "Merge two sorted sequences into one, by their priorities.",
    hint: "priority:value pairs, two sorted sequences with a | between them; priorities from 0 to 1, values from 0 to 31",
    example: "0.11:5 0.42:3 0.83:17 0.9:8 | 0.2:7 0.47:30 0.5:1 0.97:12",
    answerBits: 5,
    parse(text) {
      const parts = text.split("|");
      if (parts.length !== 2) fail("expected two sequences with one | between them, as in 0.1:5 0.9:3 | 0.2:7");
      const question = parts.map((part) => words(part).map((word) => pair(word, real)));
      for (const sequence of question) {
        sequence.forEach(([priority], i) => {
          if (!(priority >= 0 && priority <= 1)) fail(`a priority must be between 0 and 1, got ${priority}`);
          if (i && priority < sequence[i - 1][0]) {
            fail(`each sequence must be sorted, but ${priority} comes after ${sequence[i - 1][0]}`);
          }
        });
      }
      const all = some(question.flat(), "priority:value pair");
      all.forEach(([, value], i) => inRange(value, 5, `value ${i + 1}`));
      const seen = new Set();
      for (const [priority] of all) {
        const single = Math.fround(priority);
        if (seen.has(single)) fail(`priorities must differ, got ${priority} twice`);
        seen.add(single);
      }
      return question;
    },
    rows: (question) => question.flat().map(([priority, value]) => [Math.fround(priority), ...bitsOf(value, 5)]),
    labels: (question) => question.flat().map(itemText),
    solve: (question) => question.flat().sort((a, b) => a[0] - b[0]).map(([, value]) => value),
    show: (question) => question.map((part) => part.map(itemText).join(" ")).join(" | ").trim(),
    random(n) {
      const places = shuffled(gridFor(n)).slice(0, n);
      const split = n > 1 ? 1 + below(n - 1) : 1;
      return merging(gridFor(n), places.slice(0, split), places.slice(split));
    },
    attacks: {
      "neighbouring priorities in turn": (n) => {
        const first = below(gridFor(n) - n + 1);
        const places = times(n, (i) => first + i);
        return merging(gridFor(n), places.filter((_, i) => i % 2 === 0), places.filter((_, i) => i % 2));
      },
      "one against many": (n) => {
        const [one, ...many] = shuffled(gridFor(n)).slice(0, n);
        return merging(gridFor(n), [one], many);
      },
      "one sequence after the other": (n) => {
        const places = shuffled(gridFor(n)).slice(0, n).sort(ascending);
        return merging(gridFor(n), places.slice(n >> 1), places.slice(0, n >> 1));
      },
    },
  };

  const filled = (digit, n) => digit.repeat((n >> 1) - 1);
  const decimal = (number) => {
    const text = count(number);
    return text.length > 40 ? `${text.slice(0, 12)}…${text.slice(-12)}` : text;
  };
  const add = {
    ...common,
    name: "add",
    title: "Add",
    about: "Add two binary numbers. They lie in the leaves lowest digit first, and the sum comes so too.",
    hint: "two binary numbers with a + between them",
    example: "101 + 110",
    answerBits: 1,
    fewest: 4,
    lowestFirst: true,
    parse(text) {
      const numbers = text.split("+").map((number) => number.trim());
      if (numbers.length !== 2) fail("expected two binary numbers with one + between them, as in 1011 + 110");
      for (const number of numbers) {
        if (!/^[01]+$/.test(number)) fail(`expected a binary number such as 1011, got ${quoted(number)}`);
      }
      return numbers;
    },
    widened(question) {
      const width = Math.max(...question.map((number) => number.length));
      return question.map((number) => [...number.padStart(width, "0")].reverse());
    },
    rows(question) {
      const [first, second] = this.widened(question).map((digits) => digits.map((digit) => [Number(digit), 0, 0]));
      return [...first, [0, 1, 0], ...second, [0, 0, 1]];
    },
    labels(question) {
      const [first, second] = this.widened(question);
      return [...first, "+", ...second, "="];
    },
    solve(question) {
      const [first, second] = this.widened(question);
      let carry = 0;
      const sum = first.map((digit, i) => {
        const total = Number(digit) + Number(second[i]) + carry;
        carry = total >> 1;
        return total & 1;
      });
      return [...sum, carry];
    },
    showAnswer: (items) => items.toReversed().join("").replace(/^0+(?=.)/, ""),
    show: (question) => question.join(" + "),
    random: (n) => times(2, () => times((n >> 1) - 1, () => below(2)).join("")),
    // In decimal, as people write it: the question, and what the network's digits come to.
    reading([first, second], digits) {
      const [a, b] = [first, second].map((number) => BigInt(`0b${number}`));
      const sum = digits.length ? BigInt(`0b${digits.toReversed().join("")}`) : null;
      return `In decimal: ${decimal(a)} + ${decimal(b)} = ${decimal(a + b)}` + (sum === null ? "" : `; the network says ${decimal(sum)}`);
    },
    attacks: {
      "a carry all the way": (n) => [filled("1", n), filled("0", n).replace(/0$/, "1")],
      "nothing but ones": (n) => [filled("1", n), filled("1", n)],
      "zero and zero": (n) => [filled("0", n), filled("0", n)],
      "no carry at all": (n) => {
        const first = times((n >> 1) - 1, () => below(2));
        return [first.join(""), first.map((digit) => 1 - digit).join("")];
      },
    },
  };

  // Hard sequences of n operations; `item` makes what is pushed, first to last by rank below 32.
  function hardOperations(most, item, ranked) {
    const room = (n) => Math.max(1, Math.min(most, n >> 1));
    // Fill so many places, then empty them, again and again.
    const cycles = (n, places, push) =>
      times(n, (t) => (t % (2 * places) < places ? push(t % (2 * places)) : "pop"));
    return {
      "fill it, then empty it": (n) => {
        const ranks = shuffled(32);
        return cycles(n, room(n), (i) => item(ranks[i % 32]));
      },
      "push and pop in turn": (n) => cycles(n, 1, () => item(below(32))),
      "equal values": (n) => {
        const [ranks, value] = [shuffled(32), below(32)];
        return cycles(n, room(n), (i) => item(ranks[i % 32], value));
      },
      [`ascending ${ranked}`]: (n) => cycles(n, room(n), (i) => item(i % 32)),
      [`descending ${ranked}`]: (n) => cycles(n, room(n), (i) => item(31 - (i % 32))),
    };
  }

  // A data structure: operations seen one at a time; `take` removes what a pop must give.
  function structure(name, take, more) {
    return {
      ...common,
      name,
      ends: false,
      online: true,
      answerBits: 5,
      hint: "push NUMBER (0 to 31) and pop, with commas between them",
      parsePush: (word) => [integer(word)],
      checkPush() {},
      parse(text) {
        const operations = text.split(",").map((part) => part.trim()).filter(Boolean);
        const inside = [];
        const question = some(operations, "operation").map((operation, i) => {
          const [verb, ...rest] = operation.split(/\s+/);
          const where = `operation ${i + 1}`;
          if (/^pop$/i.test(verb) && !rest.length) {
            if (!inside.length) fail(`${where} is a pop, but nothing is left to pop`);
            take(inside);
            return "pop";
          }
          if (!/^push$/i.test(verb) || rest.length !== 1) {
            fail(`${where} must be a push or a pop, as in “${this.shortExample}”, got ${quoted(operation)}`);
          }
          const pushed = this.parsePush(rest[0]);
          inRange(pushed.at(-1), 5, `${where}, push: the value`);
          this.checkPush(pushed, inside, where);
          inside.push(pushed);
          return pushed;
        });
        return question;
      },
      // People write the priority before the value; the network was trained with the value first.
      rows: (question) =>
        question.map((item) =>
          item === "pop"
            ? [0, 1, ...new Array(5 * (more.width ?? 1)).fill(0)]
            : [1, 0, ...item.toReversed().flatMap((number) => bitsOf(number, 5))],
        ),
      labels: (question) => question.map((item) => (item === "pop" ? "pop" : `push ${itemText(item)}`)),
      // After each operation: what is inside (the pushed items themselves), and what a pop gave.
      history(question) {
        const inside = [];
        return question.map((item) => {
          const gave = item === "pop" ? take(inside).at(-1) : null;
          if (item !== "pop") inside.push(item);
          return { gave, inside: this.ordered(inside.slice()) };
        });
      },
      ordered: (inside) => inside,
      solve(question) {
        return this.history(question).map(({ gave }) => gave).filter((gave) => gave !== null);
      },
      expected(question) {
        return this.history(question).map((moment) => moment.gave);
      },
      show: (question) => question.map((item) => (item === "pop" ? "pop" : `push ${itemText(item)}`)).join(", "),
      randomPush: () => [below(32)],
      most: Infinity,
      random(n) {
        const inside = [];
        return times(n, (t) => {
          const wantsPop = chance() * n < t + 1;
          if (inside.length >= this.most || (inside.length && wantsPop)) {
            take(inside);
            return "pop";
          }
          const pushed = this.randomPush(inside);
          inside.push(pushed);
          return pushed;
        });
      },
      attacks: hardOperations(Infinity, (rank, value = rank) => [value], "values"),
      ...more,
    };
  }

  const stack = structure("stack", (inside) => inside.pop(), {
    title: "Stack",
    about: "Last in, first out. The memory starts empty; operations come one at a time.",
    example: "push 4, push 9, push 21, pop, push 7, pop, pop, pop",
    shortExample: "push 4, push 9, pop",
    inside: "Truly inside (the top is on the right)",
    outOnRight: true,
  });

  const queue = structure("queue", (inside) => inside.shift(), {
    title: "Queue",
    about: "First in, first out. The memory starts empty; operations come one at a time.",
    example: "push 4, push 9, push 21, pop, push 7, pop, pop, pop",
    shortExample: "push 4, push 9, pop",
    inside: "Truly inside (the next one out is on the left)",
  });

  function takeHighest(inside) {
    const best = inside.reduce((a, b, i) => (b[0] > inside[a][0] ? i : a), 0);
    return inside.splice(best, 1)[0];
  }

  const priorityQueue = structure("priority_queue", takeHighest, {
    title: "Priority queue",
    about: "The highest priority first. The memory starts empty; operations come one at a time.",
    hint: "push PRIORITY:VALUE (both 0 to 31) and pop, with commas between them",
    example: "push 30:4, push 2:9, push 17:21, pop, push 25:7, pop, pop, pop",
    shortExample: "push 30:4, push 2:9, pop",
    inside: "Truly inside, priority:value (the next one out is on the left)",
    width: 2,
    most: 32,
    parsePush: (word) => pair(word),
    checkPush([priority], inside, where) {
      inRange(priority, 5, `${where}, push: the priority`);
      if (inside.some((other) => other[0] === priority)) {
        fail(`${where} pushes priority ${priority}, which is still inside`);
      }
    },
    ordered: (inside) => inside.sort((a, b) => b[0] - a[0]),
    randomPush(inside) {
      const free = times(32, (i) => i).filter((p) => !inside.some((other) => other[0] === p));
      return [free[below(free.length)], below(32)];
    },
    attacks: hardOperations(32, (rank, value = below(32)) => [rank, value], "priorities"),
  });

  // A task of someone's own: only Python can read its questions, so it comes with traces of some.
  function prepared({ name, summary, online, traces }) {
    const squeezed = (text) => text.trim().split(/\s+/).join(" ");
    const byText = new Map(traces.map((trace) => [squeezed(trace.text), trace]));
    return {
      ...common,
      name,
      title: name.replaceAll("_", " ").replace(/^./, (letter) => letter.toUpperCase()),
      about: `${summary}.`,
      hint: `one of the ${count(byText.size)} inputs in this page; Random takes another of them`,
      example: traces[0].text,
      online,
      // A word a row where they are as many, else the row's number.
      labels({ text, rows }) {
        const parts = [words(text), text.split(",").map((part) => part.trim())];
        return parts.find((each) => each.length === rows.length) ?? rows.map((_, i) => `row ${i + 1}`);
      },
      random: (n) => {
        const distance = (trace) => Math.abs(trace.rows.length - n);
        const nearest = Math.min(...traces.map(distance));
        const fitting = traces.filter((trace) => distance(trace) === nearest);
        return fitting[below(fitting.length)];
      },
      show: ({ text }) => text,
      trace(text) {
        const found = byText.get(squeezed(text));
        if (!found) fail(`this page was made without the input ${quoted(text)}; make one with it: ham view ${name} INPUT`);
        return { ...found, question: found };
      },
    };
  }

  const all = [sort, reverse, search, merge, add, sort4, stack, queue, priorityQueue];

  // Read a question and run a model on it: a trace, with the oracle's word on every output.
  function trace(task, model, text) {
    const question = task.parse(text);
    const rows = task.rows(question);
    if (rows.length > MOST_ROWS) {
      fail(`this page holds up to ${count(MOST_ROWS)} rows, got ${count(rows.length)}`);
    }
    const expected = task.expected(question);
    const leaves = Math.max(2 ** Math.ceil(Math.log2(rows.length)), model.smallest);
    const { tree, steps } = Network.run(model, rows, leaves, expected.length);
    const outputs = steps.map((step) => step.output).filter(Boolean);
    outputs.forEach((output, i) => {
      const ended = task.ends && output.bits.at(-1) === 1;
      const item = task.answerItem(output.bits.slice(0, task.answerBits));
      output.item = ended ? "end" : item;
      output.expected = expected[i];
      output.right = expected[i] === null ? null : output.bits.join("") === targetBits(task, expected[i]).join("");
    });
    const counted = outputs.filter((output) => output.expected !== null);
    const end = task.ends ? counted.findIndex((output) => output.item === "end") : -1;
    const said = (end < 0 ? counted : counted.slice(0, end)).map((output) => output.item);
    return {
      format: "ham-trace",
      version: 1,
      task: task.name,
      model: model.kind,
      text: task.show(question),
      rows,
      leaves,
      tree,
      steps,
      answer: task.showAnswer(said),
      expected: task.showAnswer(task.solve(question)),
      right: counted.every((output) => output.right),
      question,
    };
  }

  function targetBits(task, item) {
    if (item === "end") return [...new Array(task.answerBits).fill(0), 1];
    const numbers = Array.isArray(item) ? item : [item];
    const bits = numbers.flatMap((number) => bitsOf(number, task.answerBits / numbers.length));
    return task.ends ? [...bits, 0] : bits;
  }

  return { all, attack, count, itemText, InputError, prepared, repeatably, trace };
})();
