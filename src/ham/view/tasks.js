// The tasks as a person sees them: reading a question, the rows the network gets, the oracle, a
// random question. The same as ham/tasks in Python, and tested against it. Nothing here draws.
const Tasks = (() => {
  class InputError extends Error {}

  const MOST_ROWS = 1024;
  const words = (text) => text.split(/[\s,]+/).filter(Boolean);
  const quoted = (word) => `“${word.length > 24 ? `${word.slice(0, 24)}…` : word}”`;
  const below = (n) => Math.floor(Math.random() * n);
  const times = (n, make) => Array.from({ length: n }, (_, i) => make(i));
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

  // What most tasks share; each below says what differs.
  const common = {
    ends: true,
    online: false,
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
      ...more,
    };
  }

  const reverse = numbers("reverse", 10, (items) => items.toReversed(), {
    title: "Reverse",
    about: "Say the input backwards.",
    example: "3 14 159 265 358 979 323 846",
  });

  const sort4 = numbers("sort4", 4, (items) => items.toSorted((a, b) => a - b), {
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
  };

  const search = {
    ...common,
    name: "search",
    title: "Search",
    about: "Find the value of the asked key among sorted pairs, in two looks.",
    hint: "key:value pairs sorted by key, a question mark, and the key to look up",
    example: "1:5 3:7 8:21 9:2 15:30 22:11 29:4 ? 15",
    answerBits: 5,
    ends: false,
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
      const keys = times(n - 1, () => below(32)).sort((a, b) => a - b);
      return { pairs: keys.map((key) => [key, below(32)]), query: keys[below(n - 1)] };
    },
  };

  const GRID = 300;
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
      const grid = GRID * Math.ceil(n / GRID);
      const picks = times(grid, (i) => i + 1);
      for (let i = 0; i < n; i++) {
        const j = i + below(grid - i);
        [picks[i], picks[j]] = [picks[j], picks[i]];
      }
      const split = n > 1 ? 1 + below(n - 1) : 1;
      const sequence = (part) =>
        part.sort((a, b) => a - b).map((k) => [Number((k / grid).toFixed(grid > GRID ? 5 : 3)), below(32)]);
      return [sequence(picks.slice(0, split)), sequence(picks.slice(split, n))];
    },
  };

  const add = {
    ...common,
    name: "add",
    title: "Add",
    about: "Add two binary numbers, written from their lowest digits.",
    hint: "two binary numbers with a + between them",
    example: "101 + 110",
    answerBits: 1,
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
    random: (n) => times(2, () => times(n / 2 - 1, () => below(2)).join("")),
  };

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
          inRange(pushed[0], 5, `${where}, push: the value`);
          this.checkPush(pushed, inside, where);
          inside.push(pushed);
          return pushed;
        });
        return question;
      },
      rows: (question) =>
        question.map((item) =>
          item === "pop"
            ? [0, 1, ...new Array(5 * (more.width ?? 1)).fill(0)]
            : [1, 0, ...item.flatMap((number) => bitsOf(number, 5))],
        ),
      labels: (question) => question.map((item) => (item === "pop" ? "pop" : `push ${itemText(item)}`)),
      // After each operation: what is inside, and what a pop gave.
      history(question) {
        const inside = [];
        return question.map((item) => {
          const gave = item === "pop" ? take(inside)[0] : null;
          if (item !== "pop") inside.push(item);
          return { gave, inside: this.ordered(inside.slice()).map(itemText) };
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
          const wantsPop = Math.random() * n < t + 1;
          if (inside.length >= this.most || (inside.length && wantsPop)) {
            take(inside);
            return "pop";
          }
          const pushed = this.randomPush(inside);
          inside.push(pushed);
          return pushed;
        });
      },
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
    const best = inside.reduce((a, b, i) => (b[1] > inside[a][1] ? i : a), 0);
    return inside.splice(best, 1)[0];
  }

  const priorityQueue = structure("priority_queue", takeHighest, {
    title: "Priority queue",
    about: "The highest priority first. The memory starts empty; operations come one at a time.",
    hint: "push VALUE:PRIORITY (both 0 to 31) and pop, with commas between them",
    example: "push 4:30, push 9:2, push 21:17, pop, push 7:25, pop, pop, pop",
    shortExample: "push 4:30, push 9:2, pop",
    inside: "Truly inside, value:priority (the next one out is on the left)",
    width: 2,
    most: 32,
    parsePush: (word) => pair(word),
    checkPush([, priority], inside, where) {
      inRange(priority, 5, `${where}, push: the priority`);
      if (inside.some((other) => other[1] === priority)) {
        fail(`${where} pushes priority ${priority}, which is still inside`);
      }
    },
    ordered: (inside) => inside.sort((a, b) => b[1] - a[1]),
    randomPush(inside) {
      const free = times(32, (i) => i).filter((p) => !inside.some((other) => other[1] === p));
      return [below(32), free[below(free.length)]];
    },
  });

  const all = [sort, reverse, search, merge, add, sort4, stack, queue, priorityQueue];
  const byName = Object.fromEntries(all.map((task) => [task.name, task]));

  // Read a question and run a model on it: a trace, with the oracle's word on every output.
  function trace(task, model, text) {
    const question = task.parse(text);
    const rows = task.rows(question);
    if (rows.length > MOST_ROWS) {
      fail(`this page holds up to ${MOST_ROWS.toLocaleString("en")} rows, got ${rows.length.toLocaleString("en")}`);
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

  return { all, byName, trace, itemText, InputError, MOST_ROWS };
})();
