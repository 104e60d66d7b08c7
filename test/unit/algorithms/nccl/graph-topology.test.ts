/** NCCL's graph files: what is read from them, and what is refused with its line. */
import fc from "fast-check";
import { type CommError, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { costEntry } from "../../../../src/algorithms/nccl/choice.ts";
import { graphTopology } from "../../../../src/algorithms/nccl/graph-topology.ts";
import { ncclPlan } from "../../../../src/algorithms/nccl/request.ts";
import {
  chainTree,
  h200x8,
  levelsOf,
  type Topology,
} from "../../../../src/algorithms/nccl/topology.ts";
import { graphText, joinedText, type WrittenGraph } from "../../../support/graph-files.ts";

/** A graph of one node by itself. */
function graph(
  id: number,
  pattern: number,
  speed: number,
  channels: readonly (readonly number[])[],
): WrittenGraph {
  return { id, pattern, channels, attributes: { speedintra: speed, speedinter: speed } };
}

const file = graphText;

const twelve = <T>(channel: (number: number) => T): T[] =>
  Array.from({ length: 12 }, (_, c) => channel(c));

/** The result of NCCL's search on the preset's machine, as a file: trees from the root to the leaf. */
function presetFile(ranks: number): string {
  const { channels, ringSearch, treeSearch } = h200x8(ranks);
  return file(
    graph(
      0,
      4,
      ringSearch.bandwidth,
      twelve((c) => channels[c]?.ring ?? []),
    ),
    graph(
      1,
      1,
      treeSearch.bandwidth,
      twelve((c) => levelsOf(channels[c]?.tree ?? chainTree([])).map(({ rank }) => rank)),
    ),
    graph(3, 5, 40, [[0]]),
  );
}

const twoChannels = (ring: number[][], tree: number[][]): Topology =>
  graphTopology(file(graph(0, 4, 20, ring), graph(1, 3, 18, tree)))(ring[0]?.length ?? 0);

describe("a file", () => {
  test.each([2, 3, 4, 5, 6, 7, 8])(
    "of the preset's machine with %i GPUs gives the preset",
    (ranks) => {
      const { name, ...read } = graphTopology(presetFile(ranks))(ranks);
      const { name: presetName, ...preset } = h200x8(ranks);
      expect(name).not.toBe(presetName);
      expect(read).toEqual({ ...preset, treeSearch: { ...preset.treeSearch, pattern: 1 } });
      const call = {
        version: "2.28",
        collective: "allReduce",
        dtype: "bfloat16",
        op: "avg",
      } as const;
      for (const count of [1, 1000, 1 << 20, 1 << 24]) {
        const plan = (topology: Topology) => {
          const { algorithm, protocol, pieces, parts } = ncclPlan({
            ...call,
            topology,
            count,
          }) as never;
          return { algorithm, protocol, pieces, parts };
        };
        expect(plan({ ...read, name })).toEqual(plan({ ...preset, name }));
      }
    },
  );

  test("maps devices to ranks, and turns rings to begin at rank 0", () => {
    const { channels, ranks } = twoChannels(
      [
        [9, 12, 4],
        [4, 9, 12],
      ],
      [
        [12, 4, 9],
        [4, 9, 12],
      ],
    );
    expect(ranks).toBe(3);
    const first = { ring: [0, 1, 2], tree: chainTree([1, 0, 2]) };
    const second = { ring: [0, 1, 2], tree: chainTree([2, 1, 0]) };
    expect(channels).toEqual([first, second, first, second]);
    expect(twoChannels([[4, 12, 9]], [[4, 12, 9]]).channels[0]?.ring).toEqual([0, 2, 1]);
  });

  test("gives as many channels as both graphs have, doubled, and the speeds of each", () => {
    const topology = twoChannels(
      [
        [0, 1],
        [1, 0],
        [0, 1],
      ],
      [
        [0, 1],
        [1, 0],
      ],
    );
    expect(topology.channels).toHaveLength(4);
    expect(topology.ringSearch).toEqual({ channels: 2, bandwidth: 20, ll128: true });
    expect(topology.treeSearch).toEqual({ channels: 2, bandwidth: 18, pattern: 3, ll128: true });
  });

  test("with a plain tree makes Tree 15 % slower in NCCL's model", () => {
    const balanced = h200x8(4);
    const plain = { ...balanced, treeSearch: { ...balanced.treeSearch, pattern: 3 } };
    for (const protocol of ["LL", "LL128", "Simple"] as const) {
      const bandwidth = (topology: Topology): number =>
        costEntry("allReduce", "Tree", protocol, topology).bandwidth;
      expect(bandwidth(plain) / bandwidth(balanced)).toBeCloseTo(0.85, 6);
    }
  });

  test("may hold comments, and one rank alone needs no ring", () => {
    const topology = graphTopology(`<!-- two\nlines -->\n${presetFile(4)}<!---->`);
    expect(topology(4).channels).toHaveLength(24);
    const call = { version: "2.28", collective: "allReduce", dtype: "int8", op: "sum" } as const;
    expect(ncclPlan({ ...call, topology: topology(1), count: 5 }).algorithm).toBe("Copy");
  });
});

describe("a world", () => {
  const xml = file(
    graph(
      0,
      4,
      30,
      twelve(() => [0, 2, 1]),
    ),
    graph(
      1,
      1,
      40,
      twelve(() => [0, 1, 2]),
    ),
  );

  test("folds along the rings of the file, and names the file", async () => {
    const world = await createWorld({
      backend: sim({ like: "nccl-2.28", topology: { xml } }),
      size: 3,
    });
    const plan = world.explain({ collective: "allReduce", dtype: "float32", op: "sum", count: 10 });
    expect(plan.chunkOf(0).order).toEqual([2, 1, 0]);
    expect(plan.claim).toMatch(/on Hopper GPUs with the given graph/);
    const results = await world.run(async (comm) => {
      const send = new Float32Array(10).fill([2 ** 24, 1, -(2 ** 24)][comm.rank] as number);
      await comm.allReduce({ send, op: "sum" });
      return send[4];
    });
    // Chunk 1 ends at rank 2: (1 + 2^24) - 2^24. Round the ring 0, 1, 2 it would end at rank 1, and be 1.
    expect(results).toEqual([0, 0, 0]);
    await world.close();
  });

  test.each([2, 4])("of %i ranks is refused by name", async (size) => {
    const opened = createWorld({ backend: sim({ like: "nccl-2.28", topology: { xml } }), size });
    await expect(opened).rejects.toMatchObject({
      code: "ERR_COMM_UNSUPPORTED",
      field: "topology",
      message: expect.stringMatching(new RegExp(`found ${size} ranks.*those of 3 GPUs`)),
    });
  });

  test("claims nothing about a part without a ring in the file", async () => {
    const world = await createWorld({
      backend: sim({ like: "nccl-2.28", topology: { xml } }),
      size: 3,
    });
    const call = { collective: "allReduce", dtype: "float32", op: "sum", count: 1 } as const;
    const claims = await world.run(async (comm) => {
      const part = await comm.split({ color: comm.rank > 0 ? 1 : 0 });
      const send = new Float32Array(1).fill(1);
      await part.allReduce({ send, op: "sum" });
      return [send[0], part.explain(call).claim] as const;
    });
    await world.close();
    expect(claims.map(([sum]) => sum)).toEqual([1, 2, 2]);
    expect(claims[1]?.[1]).toMatch(/the graph file has the rings of all 3 ranks/);
  });
});

describe("a line that does not fit is refused with its number", () => {
  const good = file(graph(0, 4, 30, [[0, 1]]), graph(1, 1, 30, [[0, 1]]));
  const errorOf = (xml: string): CommError => {
    try {
      graphTopology(xml);
    } catch (error) {
      return error as CommError;
    }
    return expect.fail("it should be refused");
  };
  const changed = (from: string | RegExp, to: string): string => {
    const text = good.replace(from, to);
    expect(text).not.toBe(good);
    return text;
  };

  test.each([
    ["text between tags", changed("    <channel>", "    <channel> here"), /line 3: found "here"/],
    ["an attribute without quotes", changed('dev="0"', "dev=0"), /line 4: found "<gpu dev=0\/>"/],
    [
      "an end of another element",
      changed("</channel>", "</graph>"),
      /line 6: found <\/graph>, needs <\/channel>/,
    ],
    [
      "an end without a beginning",
      `</graphs>\n${good}`,
      /line 1: found <\/graphs>, needs a beginning/,
    ],
    [
      "an end with attributes",
      changed("</channel>", '</channel a="1">'),
      /line 6: <\/channel> has more/,
    ],
    ["no end", good.replace("</graphs>\n", ""), /line 14: <graphs> of line 1 is open/],
    ["a second root", good + good, /line 15: found a second root/],
    ["nothing", "\n\n", /line 3: found no element/],
    ["an unfinished comment", `${good}<!-- `, /line 15: found "<!-- "/],
    ["another root", "<topology/>", /line 1: found <topology>, needs <graphs>/],
    ["another version", changed('version="1"', 'version="2"'), /line 1: found another version/],
    ["an attribute twice", changed('id="0"', 'id="0" id="0"'), /line 2: id is given twice/],
    ["a graph twice", changed('id="1"', 'id="0"'), /line 8: graph 0 is given twice/],
    ["no ring", changed('id="0"', 'id="4"'), /no graph with id="0", needs the ring graph/],
    ["no tree", changed('id="1"', 'id="4"'), /no graph with id="1", needs the tree graph/],
    [
      "a ring that is none",
      changed('pattern="4"', 'pattern="1"'),
      /line 2: pattern="1", needs one of 4/,
    ],
    ["no such attribute", changed(' samechannels="1"', ""), /line 2: <graph> has no samechannels/],
    [
      "a number that is none",
      changed('dev="0x1"', 'dev="1x"'),
      /line 5: dev="1x", needs a hexadecimal number/,
    ],
    ["a long number", changed('dev="0x1"', 'dev="0x100000000"'), /line 5: dev="0x100000000"/],
    ["a negative speed", changed('speedintra="30"', 'speedintra="-3"'), /line 2: speedintra="-3"/],
    ["no number", changed('speedinter="30"', 'speedinter="NaN"'), /line 2: speedinter="NaN"/],
    [
      "infinity",
      changed('speedintra="30"', `speedintra="${"9".repeat(400)}"`),
      /line 2: speedintra="9/,
    ],
    ["an unknown link", changed('typeinter="PIX"', 'typeinter="IB"'), /line 2: typeinter IB/],
    ["an unknown crossing", changed('crossnic="0"', 'crossnic="3"'), /needs one of 0, 1, 2/],
    [
      "an unknown attribute",
      changed("samechannels=", 'rails="2" samechannels='),
      /line 2: <graph> has rails/,
    ],
    [
      "a rank of one GPU alone",
      changed('<gpu dev="0"', '<gpu dev="0" rank="0"'),
      /line 5: <gpu> has no rank, needs the same as the first <gpu>/,
    ],
    [
      "another bus of a GPU",
      changed('<gpu dev="0"', '<gpu dev="0" bus="0"'),
      /needs dev, rank alone/,
    ],
    [
      "an element in a GPU",
      changed('<gpu dev="0"/>', '<gpu dev="0"><x/></gpu>'),
      /line 4: found <x> in 4 others/,
    ],
    [
      "more channels than NCCL has",
      file(graph(0, 4, 30, new Array(33).fill([0, 1])), graph(1, 1, 30, [[0, 1]])),
      /line 2: nchannels 33, needs at most 32/,
    ],
    ["a document type", `<!DOCTYPE graphs [<!ENTITY x "0">]>\n${good}`, /line 1: found "<!DOCTYPE/],
    ["an entity", changed('dev="0"', 'dev="&x;"'), /line 4: found "<gpu dev=\\"&x;/],
    ["a declaration", `<?xml version="1.0"?>\n${good}`, /line 1: found "<\?xml/],
    [
      "a network before the GPUs alone",
      changed('<gpu dev="0"/>', '<net dev="0"/>\n<gpu dev="0"/>'),
      /line 6: found <gpu>/,
    ],
    [
      "a network between GPUs",
      changed('<gpu dev="0"/>', '<gpu dev="0"/><net dev="0"/>'),
      /line 4: found <net>/,
    ],
    ["no speed", changed('speedintra="30"', 'speedintra="0"'), /line 2: speedintra="0"/],
    [
      "another number of channels",
      changed('nchannels="1"', 'nchannels="2"'),
      /line 2: nchannels 2, and 1 channels/,
    ],
    ["a GPU twice", changed('dev="0x1"', 'dev="0"'), /line 3: devices 0, 0, needs every GPU once/],
    [
      "a channel without GPUs",
      changed(/<channel>[\s\S]*?<\/channel>/, "<channel/>"),
      /line 3: devices/,
    ],
    [
      "another element",
      changed("<channel>", "<ring>").replace("</channel>", "</ring>"),
      /line 3: found <ring>/,
    ],
    [
      "channels of other GPUs",
      file(graph(0, 4, 30, [[0, 1]]), graph(1, 1, 30, [[0, 2]])),
      /line 8: channel 0 has devices 0, 2/,
    ],
  ])("%s", (_what, xml, message) => {
    const error = errorOf(xml);
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "topology" });
    expect(error.message).toMatch(message);
  });

  test.each([
    [
      "links that are no NVLink",
      changed('typeintra="NVL"', 'typeintra="PIX"'),
      /line 2: typeintra PIX/,
    ],
  ])("%s, as unsupported", (_what, xml, message) => {
    const error = errorOf(xml);
    expect(error).toMatchObject({ code: "ERR_COMM_UNSUPPORTED", field: "topology" });
    expect(error.message).toMatch(message);
  });
});

describe("ranks of GPUs, which NCCL 2.30 writes", () => {
  /** A text with the rank of each device. */
  const ranked = (text: string, rankOf: (device: number) => number | string): string =>
    text.replaceAll(
      /<gpu dev="(\w+)"/g,
      (tag, dev: string) => `${tag} rank="${rankOf(Number.parseInt(dev, 16))}"`,
    );
  const rings = [[0, 1, 2, 3]];
  const alone = file(graph(0, 4, 30, rings), graph(1, 1, 30, rings));
  const joined = joinedText(rings, rings, 1);

  test("number the GPUs, and those without them are numbered by device", () => {
    const mirrored = graphTopology(ranked(alone, (device) => 3 - device))(4);
    expect(mirrored.channels[0]?.ring).toEqual([0, 3, 2, 1]);
    expect(mirrored.channels[0]?.tree).toEqual(chainTree([0, 1, 2, 3]));
    expect(graphTopology(ranked(alone, (device) => device))(4)).toEqual(graphTopology(alone)(4));
  });

  test("may be those of any node, where one file is that of all", () => {
    const third = ranked(joined, (device) => 8 + device);
    expect(graphTopology(third)(12)).toEqual(graphTopology(joined)(12));
  });

  test("are those of each node, where each has a file", () => {
    const xml = [0, 1, 2].map((node) => ranked(joined, (device) => 4 * node + device));
    expect(graphTopology({ xml })(12)).toEqual(graphTopology(joined)(12));
    const swapped = [xml[0], xml[2], xml[1]] as string[];
    expect(() => graphTopology({ xml: swapped })(12)).toThrow(
      /topology xml\[1\]: line 5: the ranks begin with 8, needs rank 4/,
    );
  });

  test.each([
    ["a rank of two GPUs", (device: number) => device >> 1, /line 5: rank 0 of two GPUs/],
    [
      "ranks of other nodes between",
      (device: number) => 2 * device,
      /ranks 0, 2, 4, 6, needs cons/,
    ],
    ["no number", () => "x", /rank="x", needs an integer/],
    ["a negative number", () => -1, /rank="-1", needs an integer/],
    [
      "other ranks than those of the node",
      (device: number) => 4 + device,
      /begin with 4, needs rank 0/,
    ],
  ])("are refused: %s", (_what, rankOf, message) => {
    const error = (() => {
      try {
        return graphTopology(ranked(alone, rankOf))(4);
      } catch (thrown) {
        return thrown;
      }
    })();
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "topology" });
    expect((error as CommError).message).toMatch(message);
  });

  test("are refused where ring and tree give a GPU two of them", () => {
    const [ring, tree] = ranked(alone, (device) => device).split('id="1"') as [string, string];
    const other = tree.replace('rank="0"', 'rank="9"');
    expect(() => graphTopology(`${ring}id="1"${other}`)(4)).toThrow(
      /rank 9 of a GPU, needs its rank 0/,
    );
  });

  test("between which no node ends are refused", () => {
    expect(() => graphTopology(ranked(joined, (device) => 2 + device))(8)).toThrow(
      /the ranks begin with 2, needs a multiple of its 4 GPUs/,
    );
  });
});

describe("any text", () => {
  const good = joinedText(
    [
      [0, 1, 2],
      [2, 0, 1],
    ],
    [
      [0, 1, 2],
      [1, 2, 0],
    ],
    1,
  );
  const parts = [
    ...["<", ">", "/", '"', "=", " ", "0x", "-1", "NaN", "&x;", "<!--", "-->", "9".repeat(30)],
    ...['<net dev="0"/>', '<gpu dev="0"/>', "<channel>", "</channel>", "</graph>"],
  ];
  const edits = fc.array(
    fc.record({
      at: fc.nat(good.length),
      cut: fc.constantFrom(0, 0, 0, 1, 40),
      insert: fc.oneof(
        fc.constantFrom("", " ", "\n", "<!-- -->", ...parts),
        fc.string({ maxLength: 8 }),
      ),
    }),
    { minLength: 1, maxLength: 3 },
  );

  test("gives whole rings and trees, or an error of the option", () => {
    let [accepted, refused] = [0, 0];
    fc.assert(
      fc.property(edits, (each) => {
        const xml = each.reduce(
          (text, { at, cut, insert }) => text.slice(0, at) + insert + text.slice(at + cut),
          good,
        );
        try {
          const { channels } = graphTopology(xml)(6);
          for (const { ring, tree } of channels) {
            expect([...ring].sort()).toEqual([0, 1, 2, 3, 4, 5]);
            const below = levelsOf(tree).map(({ rank }) => rank);
            expect(below.sort()).toEqual([0, 1, 2, 3, 4, 5]);
          }
          accepted++;
        } catch (error) {
          if ((error as CommError).field !== "topology") throw error;
          refused++;
        }
      }),
      { numRuns: 1500 },
    );
    expect(Math.min(accepted, refused)).toBeGreaterThan(20);
  });

  const mebi = 2 ** 20;
  test.each([
    ["nested elements", "<a>".repeat(mebi / 4), /found <a> in 4 others/],
    ["ten megabytes of nested elements", "<graphs>".repeat(1_300_000), /needs at most 1,048,576/],
    ["spaces", `<graphs${" ".repeat(mebi - 7)}`, /line 1: found "<graphs /],
    ["attributes", `<graphs${' a=""'.repeat(mebi / 8)}`, /line 1: found "<graphs a=/],
    ["an unfinished comment", `<!--${"-".repeat(mebi - 4)}`, /line 1: found "<!--/],
    ["comments", "<!---->".repeat(mebi / 8), /found no element/],
    ["a value", `<graphs version="${"1".repeat(mebi / 2)}"/>`, /version="1+…, needs an integer/],
  ])("of a megabyte: %s", (_what, xml, message) => {
    const started = performance.now();
    expect(() => graphTopology(xml)).toThrow(message);
    expect(performance.now() - started).toBeLessThan(5000);
  });
});
