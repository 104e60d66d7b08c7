/** Graph files as NCCL writes them. */

/** A graph: its channels in devices, and attributes that differ from those of a node with NVLink. */
export interface WrittenGraph {
  readonly id: number;
  readonly pattern: number;
  readonly channels: readonly (readonly number[])[];
  /** NICs of every channel; none for a node by itself. */
  readonly nets?: readonly (readonly [number, number])[];
  readonly attributes?: Readonly<Record<string, string | number>>;
}

/** NCCL writes numbers of devices as C's `%#lx` does. */
const hex = (dev: number): string => (dev === 0 ? "0" : `0x${dev.toString(16)}`);

/** The text of a file. */
export function graphText(...graphs: readonly WrittenGraph[]): string {
  return ['<graphs version="1">', ...graphs.flatMap(graphLines), "</graphs>", ""].join("\n");
}

function graphLines({ id, pattern, channels, nets, attributes = {} }: WrittenGraph): string[] {
  const values = {
    ...{ id, pattern, crossnic: 0, nchannels: channels.length, speedintra: 30, speedinter: 30 },
    ...{ latencyinter: 0, typeintra: "NVL", typeinter: "PIX", samechannels: 1 },
    ...attributes,
  };
  const text = Object.entries(values).map(([name, value]) => `${name}="${value}"`);
  return [
    `  <graph ${text.join(" ")}>`,
    ...channels.flatMap((devices, channel) => {
      const [entry, exit] = nets?.[channel] ?? [];
      return [
        "    <channel>",
        ...(entry === undefined ? [] : [`      <net dev="${hex(entry)}"/>`]),
        ...devices.map((dev) => `      <gpu dev="${hex(dev)}"/>`),
        ...(exit === undefined ? [] : [`      <net dev="${hex(exit)}"/>`]),
        "    </channel>",
      ];
    }),
    "  </graph>",
  ];
}

/** The ring and the tree of a node among several. */
export function joinedText(
  ring: readonly (readonly number[])[],
  tree: readonly (readonly number[])[],
  pattern: number,
  attributes: WrittenGraph["attributes"] = {},
): string {
  const nets = (channels: readonly unknown[]) => channels.map((_, c) => [c, c] as const);
  return graphText(
    { id: 0, pattern: 4, channels: ring, nets: nets(ring), attributes },
    { id: 1, pattern, channels: tree, nets: nets(tree), attributes },
  );
}
