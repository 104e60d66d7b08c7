/**
 * The graph files of NCCL as text: a parser of their XML, and the writer of a file for NCCL_GRAPH_FILE.
 *
 * The parser accepts that one dialect: elements with attributes, separated by space and comments; no text, no entities,
 * no namespaces. Its errors name the line. The writer is the inverse of `graphTopology`. NCCL doubles the channels that
 * it reads, takes the fewer of ring and tree, and searches every missing graph. So the file has both graphs, with the
 * same number of channels. The order of GPUs is the ring, and the chain from root to leaf.
 */
import { InvalidArgumentError, UnsupportedError } from "../../api/errors.ts";
import { invalid, listText, textOf } from "../../api/option-kinds.ts";
import { balancedTree } from "./connect.ts";
import { assertTopology, levelsOf, type SearchResult, type Topology } from "./topology.ts";

/** A line of a file. */
export interface XmlPlace {
  /** The file's name in messages. */
  readonly file: string;
  /** Counted from 1. */
  readonly line: number;
}

/** An element with its place. */
export interface XmlElement {
  readonly name: string;
  readonly at: XmlPlace;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: readonly XmlElement[];
}

/** An element without its end tag so far. */
interface OpenElement extends XmlElement {
  readonly children: XmlElement[];
}

/** The most characters of a text: several times what NCCL itself can write. */
const maxCharacters = 2 ** 20;

/** Elements within each other: graphs, graph, channel, gpu. */
const maxDepth = 4;

/** Characters of a text that an error quotes. */
const maxQuoted = 120;

/** Space, a comment, or a tag with its attributes. */
const token = /\s+|<!--[\s\S]*?-->|<(\/?)([A-Za-z]\w*)((?:\s+[A-Za-z]\w*="[^"<>&]*")*)\s*(\/?)>/y;
const attribute = /([A-Za-z]\w*)="([^"]*)"/g;

/** The root element of a text; messages name the file. */
export function parseXml(text: string, file: string): XmlElement {
  const start = { file, line: 1 };
  const top: OpenElement = { name: "", at: start, attributes: new Map(), children: [] };
  const open: OpenElement[] = [top];
  if (text.length > maxCharacters) {
    const found = `found ${text.length.toLocaleString("en")} characters`;
    throw xmlFault(start, found, `at most ${maxCharacters.toLocaleString("en")}`);
  }
  let at: XmlPlace = start;
  for (token.lastIndex = 0; token.lastIndex < text.length; ) {
    const from = token.lastIndex;
    const found = token.exec(text);
    if (found === null) throw xmlFault(at, `found ${snippet(text, from)}`, "a tag");
    const [whole, closes, name = "", attributes = "", single] = found;
    if (closes === "/") close(open, name, at, attributes + single);
    else if (name !== "") {
      const element = { name, at, attributes: attributesOf(attributes, at), children: [] };
      (open.at(-1) as OpenElement).children.push(element);
      if (open.length > maxDepth) {
        throw xmlFault(at, `found <${name}> in ${open.length - 1} others`, "fewer of them");
      }
      if (single === "") open.push(element);
    }
    const lines = whole.split("\n").length - 1;
    if (lines > 0) at = { file, line: at.line + lines };
  }
  const last = open.at(-1) as OpenElement;
  if (last !== top) {
    throw xmlFault(at, `<${last.name}> of line ${last.at.line} is open`, "its end");
  }
  const [root, second] = top.children;
  if (root === undefined) throw xmlFault(at, "found no element", "<graphs>");
  if (second !== undefined) throw xmlFault(second.at, "found a second root", "only one");
  return root;
}

/** The error for a line of a file. */
export function xmlFault(
  { file, line }: XmlPlace,
  found: string,
  needed: string,
): InvalidArgumentError {
  const quoted = found.length > maxQuoted ? `${found.slice(0, maxQuoted)}…` : found;
  return new InvalidArgumentError(
    {
      headline: `${file}: line ${line}: ${quoted}, needs ${needed}`,
      hint: "pass the text of a file that NCCL_GRAPH_DUMP_FILE wrote",
    },
    { field: "topology" },
  );
}

/** The value of an attribute. */
export function fieldOf({ attributes, name, at }: XmlElement, attribute: string): string {
  const value = attributes.get(attribute);
  if (value === undefined) throw xmlFault(at, `<${name}> has no ${attribute}`, "one");
  return value;
}

/** Throws for an attribute that NCCL does not write: it could say more than is read. */
export function assertAttributes(
  { attributes, name, at }: XmlElement,
  known: readonly string[],
): void {
  for (const attribute of attributes.keys()) {
    if (known.includes(attribute)) continue;
    throw xmlFault(at, `<${name}> has ${attribute}`, `${known.join(", ") || "none"} alone`);
  }
}

function close(open: OpenElement[], name: string, at: XmlPlace, rest: string): void {
  const last = open.at(-1) as OpenElement;
  if (rest !== "") throw xmlFault(at, `</${name}> has more than a name`, `</${name}>`);
  if (open.length > 1 && last.name === name) open.pop();
  else throw xmlFault(at, `found </${name}>`, open.length > 1 ? `</${last.name}>` : "a beginning");
}

function attributesOf(text: string, at: XmlPlace): Map<string, string> {
  const attributes = new Map<string, string>();
  for (const [, name = "", value = ""] of text.matchAll(attribute)) {
    if (attributes.has(name)) throw xmlFault(at, `${name} is given twice`, "it once");
    attributes.set(name, value);
  }
  return attributes;
}

function snippet(text: string, at: number): string {
  const rest = text.slice(at, at + 24).split("\n")[0] ?? "";
  return JSON.stringify(rest);
}

const ringPattern = 4;

/**
 * The file of a node, for GPUs by device number: `devices[rank]` is the GPU of a rank.
 *
 * @throws InvalidArgumentError for other numbers than one for each rank, and UnsupportedError for several nodes.
 */
export function graphFile(topology: Topology, devices: readonly number[]): string {
  assertTopology("graphFile", topology);
  const { ranks, nodes, channels, ringSearch, treeSearch, sameChannels } = topology;
  if (nodes > 1) {
    const headline = `graphFile: topology: found ${nodes} nodes, a file has the graphs of one`;
    throw new UnsupportedError({ headline }, { field: "topology" });
  }
  const isDevice = (each: unknown): boolean => Number.isInteger(each) && Number(each) >= 0;
  const isList = Array.isArray(devices) && devices.every(isDevice);
  if (!isList || devices.length !== ranks || new Set(devices).size !== ranks) {
    const found = Array.isArray(devices) ? listText(devices) : textOf(devices);
    throw invalid("graphFile", "devices", found, `${ranks} different numbers of GPUs`);
  }
  const found = channels.slice(0, channels.length / 2);
  const shared = { devices, sameChannels };
  return [
    '<graphs version="1">',
    ...graph(
      0,
      { pattern: ringPattern, ...ringSearch, ...shared },
      found.map(({ ring }) => ring),
    ),
    ...graph(
      1,
      { pattern: balancedTree, ...treeSearch, ...shared },
      found.map(({ tree }) => levelsOf(tree).map(({ rank }) => rank)),
    ),
    "</graphs>",
    "",
  ].join("\n");
}

interface GraphFacts extends SearchResult {
  readonly devices: readonly number[];
  readonly sameChannels: boolean;
}

function graph(id: number, facts: GraphFacts, channels: readonly (readonly number[])[]): string[] {
  const { pattern = balancedTree, bandwidth, devices, sameChannels } = facts;
  const attributes = {
    id,
    pattern,
    crossnic: 0,
    nchannels: channels.length,
    speedintra: bandwidth,
    speedinter: bandwidth,
    latencyinter: 0,
    typeintra: "NVL",
    typeinter: "PIX",
    samechannels: sameChannels ? 1 : 0,
  };
  const text = Object.entries(attributes).map(([name, value]) => `${name}="${value}"`);
  return [
    `  <graph ${text.join(" ")}>`,
    ...channels.flatMap((ranks) => [
      "    <channel>",
      ...ranks.map((rank) => `      <gpu dev="0x${(devices[rank] as number).toString(16)}"/>`),
      "    </channel>",
    ]),
    "  </graph>",
  ];
}
