/**
 * Reads the XML that NCCL writes its graphs in: elements with attributes, nothing between them but space and comments.
 *
 * It is a strict reader of that one dialect, not of XML: no text, no entities, no namespaces. What does not fit is
 * refused with its line.
 */
import { InvalidArgumentError } from "../../api/errors.ts";

/** An element with its place in the file. */
export interface XmlElement {
  readonly name: string;
  /** Counted from 1. */
  readonly line: number;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: readonly XmlElement[];
}

/** An element that is still open. */
interface OpenElement extends XmlElement {
  readonly children: XmlElement[];
}

/** Space, a comment, or a tag with its attributes. */
const token = /\s+|<!--[\s\S]*?-->|<(\/?)([A-Za-z]\w*)((?:\s+[A-Za-z]\w*="[^"<>]*")*)\s*(\/?)>/y;
const attribute = /([A-Za-z]\w*)="([^"]*)"/g;

/** The one root element of a text. */
export function parseXml(text: string): XmlElement {
  const top: OpenElement = { name: "", line: 1, attributes: new Map(), children: [] };
  const open: OpenElement[] = [top];
  let line = 1;
  for (token.lastIndex = 0; token.lastIndex < text.length; ) {
    const at = token.lastIndex;
    const found = token.exec(text);
    if (found === null) throw xmlFault(line, `found ${snippet(text, at)}`, "a tag");
    const [whole, closes, name = "", attributes = "", single] = found;
    if (closes === "/") close(open, name, line, attributes + single);
    else if (name !== "") {
      const element = { name, line, attributes: attributesOf(attributes, line), children: [] };
      (open.at(-1) as OpenElement).children.push(element);
      if (single === "") open.push(element);
    }
    line += whole.split("\n").length - 1;
  }
  const last = open.at(-1) as OpenElement;
  if (last !== top) throw xmlFault(line, `<${last.name}> of line ${last.line} is open`, "its end");
  const [root, second] = top.children;
  if (root === undefined) throw xmlFault(line, "found no element", "<graphs>");
  if (second !== undefined) throw xmlFault(second.line, "found a second root", "only one");
  return root;
}

/** An error about a line of the file. */
export function xmlFault(line: number, found: string, needed: string): InvalidArgumentError {
  return new InvalidArgumentError(
    {
      headline: `topology xml: line ${line}: ${found}, needs ${needed}`,
      hint: "pass the text of a file that NCCL_GRAPH_DUMP_FILE wrote",
    },
    { field: "topology" },
  );
}

function close(open: OpenElement[], name: string, line: number, rest: string): void {
  const last = open.at(-1) as OpenElement;
  if (rest !== "") throw xmlFault(line, `</${name}> has more than a name`, `</${name}>`);
  if (open.length > 1 && last.name === name) open.pop();
  else
    throw xmlFault(line, `found </${name}>`, open.length > 1 ? `</${last.name}>` : "a beginning");
}

function attributesOf(text: string, line: number): Map<string, string> {
  const attributes = new Map<string, string>();
  for (const [, name = "", value = ""] of text.matchAll(attribute)) {
    if (attributes.has(name)) throw xmlFault(line, `${name} is given twice`, "it once");
    attributes.set(name, value);
  }
  return attributes;
}

function snippet(text: string, at: number): string {
  const rest = text.slice(at, at + 24).split("\n")[0] ?? "";
  return JSON.stringify(rest);
}
