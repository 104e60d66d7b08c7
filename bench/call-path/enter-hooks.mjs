// Module hooks that report every function entry of the built package: each function of dist begins with a call of
// globalThis.functionEntered(file, name). program.mjs registers them before it loads the package.

import ts from "typescript";
import { moduleOf } from "../module-of.mjs";

/** Module hook of Node: instruments the files of dist and leaves all others alone. */
export async function load(url, context, nextLoad) {
  const loaded = await nextLoad(url, context);
  if (moduleOf(url, 0) === undefined || !url.endsWith(".js")) return loaded;
  return { ...loaded, source: instrumented(String(loaded.source), url) };
}

function instrumented(text, url) {
  const source = ts.createSourceFile(url, text, ts.ScriptTarget.ES2022, true, ts.ScriptKind.JS);
  const inserts = [];
  const visit = (node) => {
    if (ts.isFunctionLike(node) && node.body !== undefined) {
      const { body } = node;
      const { line } = source.getLineAndCharacterOfPosition(body.getStart(source));
      const file = moduleOf(url, line).replace(/\.js$/, ".ts");
      const report = `functionEntered(${JSON.stringify(file)}, ${JSON.stringify(nameOf(node))})`;
      if (ts.isBlock(body)) inserts.push([body.getStart(source) + 1, `${report};`]);
      else inserts.push([body.getStart(source), `(${report}, `], [body.getEnd(), ")"]);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  inserts.sort(([a], [b]) => a - b);
  let result = "";
  let copied = 0;
  for (const [place, insert] of inserts) {
    result += text.slice(copied, place) + insert;
    copied = place;
  }
  return result + text.slice(copied);
}

/** The name by which a reader finds the function: its own, or that of the variable or property that holds it. */
function nameOf(node) {
  if (ts.isConstructorDeclaration(node)) return `new ${node.parent.name?.text ?? "class"}`;
  if (node.name !== undefined) return node.name.getText();
  const { parent } = node;
  if (ts.isVariableDeclaration(parent) || ts.isPropertyAssignment(parent))
    return parent.name.getText();
  for (let outer = parent; outer !== undefined; outer = outer.parent) {
    if (ts.isFunctionLike(outer)) return `${nameOf(outer)} (inner)`;
  }
  return "(module)";
}
