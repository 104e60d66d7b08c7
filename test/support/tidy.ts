/**
 * The rules of the code as pure functions over source text, so that test/architecture.test.ts can
 * try them on bad inputs as well as on src. Each returns one line per violation; none reads a file.
 */

import { posix } from "node:path";
import ts from "typescript";

/** A file by its path from the repository root, with forward slashes. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

/** A rule that one folder or file is free of, and why. */
export interface Exception {
  readonly path: string;
  readonly rule: string;
  readonly reason: string;
}

/**
 * The layer law: for each layer the folders that its files may import. A file of src that lies in
 * none of these folders breaks it, and so does every import that is not listed.
 */
const LAYERS: readonly { folder: string; imports: readonly string[] }[] = [
  { folder: "src/api/", imports: ["src/api/"] },
  { folder: "src/algorithms/", imports: ["src/algorithms/", "src/api/"] },
  { folder: "src/job/", imports: ["src/job/", "src/api/"] },
  { folder: "src/backends/sim/", imports: ["src/backends/sim/", "src/algorithms/", "src/api/"] },
  {
    folder: "src/backends/nccl/",
    imports: ["src/backends/nccl/", "src/algorithms/", "src/job/", "src/api/"],
  },
  {
    folder: "src/backends/tcp/",
    imports: ["src/backends/tcp/", "src/algorithms/", "src/job/", "src/api/"],
  },
  { folder: "src/parallel/", imports: ["src/parallel/", "src/api/"] },
  { folder: "src/golden/", imports: ["src/golden/", "src/algorithms/", "src/api/"] },
  { folder: "src/testing/", imports: ["src/testing/", "src/api/"] },
  { folder: "src/bench/", imports: ["src/bench/", "src/algorithms/", "src/api/"] },
  { folder: "src/cli/", imports: ["src/"] },
];

/** Each foreign package has one home; src imports no other. */
const PACKAGE_HOMES: Readonly<Record<string, string>> = {
  koffi: "src/backends/nccl/sys/",
  webgpu: "src/backends/sim/executors/webgpu/",
  "fast-check": "src/testing/",
};

/** Folders that need Node; everything else in src must also run in a browser. */
const NODE_FOLDERS = [
  "src/cli/",
  "src/bench/",
  "src/golden/",
  "src/job/",
  "src/backends/nccl/",
  "src/backends/tcp/",
];

/** Folders with results that must depend on their arguments only. */
const PURE_FOLDERS = ["src/api/", "src/algorithms/", "src/backends/sim/"];

const BANNED: Readonly<Record<string, { rule: string; instead: string }>> = {
  "Math.random": { rule: "randomness", instead: "draw from the seeded generator" },
  "crypto.getRandomValues": { rule: "randomness", instead: "draw from the seeded generator" },
  "crypto.randomUUID": { rule: "randomness", instead: "draw from the seeded generator" },
  "Date.now": { rule: "clock", instead: "take time as an argument" },
  "performance.now": { rule: "clock", instead: "take time as an argument" },
  "new Date": { rule: "clock", instead: "take time as an argument" },
  setTimeout: { rule: "timer", instead: "use the virtual clock" },
  setInterval: { rule: "timer", instead: "use the virtual clock" },
  setImmediate: { rule: "timer", instead: "use the virtual clock" },
};

/** The last word of a banned name. */
const BANNED_WORD = new RegExp(
  Object.keys(BANNED)
    .map((name) => `\\b${/\w+$/.exec(name)?.[0]}\\b`)
    .join("|"),
);

/** Layers inside of a folder: for each subfolder the others that it may import. Files beside them may import all. */
const SUBFOLDER_LAYERS: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  "src/backends/nccl/": {
    sys: [],
    result: ["sys"],
    discovery: ["result", "sys"],
    process: ["discovery", "sys"],
    device: ["result", "sys"],
    calls: ["device", "result", "sys"],
  },
};

const within = (path: string, folders: readonly string[]): boolean =>
  folders.some((folder) => path.startsWith(folder));

/** True when an exception with this rule covers the path. */
function isExcepted(path: string, rule: string, exceptions: readonly Exception[]): boolean {
  return exceptions.some((each) => each.rule === rule && path.startsWith(each.path));
}

/** The function with its results kept by file: several rules read the same files. */
function kept<T>(of: (file: SourceFile) => T): (file: SourceFile) => T {
  const results = new WeakMap<SourceFile, T>();
  return (file) => {
    const known = results.get(file);
    if (known !== undefined) return known;
    const result = of(file);
    results.set(file, result);
    return result;
  };
}

const treeOf = kept(({ path, text }) =>
  ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true),
);

/** Every module a file names: imports, re-exports, dynamic imports, types included. */
export const importsOf: (file: SourceFile) => readonly string[] = kept(({ text }) =>
  ts.preProcessFile(text, true, true).importedFiles.map((each) => each.fileName),
);

const resolveFrom = (file: SourceFile, specifier: string): string =>
  posix.join(posix.dirname(file.path), specifier);

/** Imports that cross the layers in a forbidden direction, or reach a package outside its home. */
export function layerViolations(file: SourceFile): string[] {
  const layer = LAYERS.find((each) => file.path.startsWith(each.folder));
  if (layer === undefined) return [`${file.path}: its folder has no row in LAYERS`];
  return [...subfolderViolations(file), ...importViolations(file, layer.imports)];
}

/** Imports between the subfolders of one folder that their order forbids. */
function subfolderViolations(file: SourceFile): string[] {
  const parent = Object.keys(SUBFOLDER_LAYERS).find((folder) => file.path.startsWith(folder));
  if (parent === undefined) return [];
  const subfolderOf = (path: string): string | undefined =>
    /^([^/]+)\//.exec(path.slice(parent.length))?.[1];
  const own = subfolderOf(file.path);
  if (own === undefined) return [];
  const targets = importsOf(file)
    .filter((specifier) => specifier.startsWith("."))
    .map((specifier) => resolveFrom(file, specifier))
    .filter((target) => target.startsWith(parent));
  const allowed = SUBFOLDER_LAYERS[parent]?.[own];
  return targets.flatMap((target) => {
    const other = subfolderOf(target);
    if (other === own || (other !== undefined && allowed?.includes(other))) return [];
    const rule = `${own} may import of its siblings: ${allowed?.join(", ") || "none"}`;
    return [`${file.path}: imports ${target}; ${rule}`];
  });
}

/** Imports outside of the allowed folders, and packages outside of their home. */
function importViolations(file: SourceFile, allowed: readonly string[]): string[] {
  return importsOf(file).flatMap((specifier) => {
    if (specifier.startsWith("node:")) return [];
    if (specifier.startsWith(".")) {
      const target = resolveFrom(file, specifier);
      if (within(target, allowed)) return [];
      return [`${file.path}: imports ${target}; the layer law allows ${allowed.join(", ")}`];
    }
    const home = PACKAGE_HOMES[specifier];
    if (home !== undefined && file.path.startsWith(home)) return [];
    return [`${file.path}: imports the package "${specifier}", allowed in ${home ?? "no folder"}`];
  });
}

/** Imports of an oracle that are more than types of other folders: it must not share a fault of the code that it judges. */
export function oracleViolations(file: SourceFile): string[] {
  const folder = "src/testing/oracle/";
  if (!file.path.startsWith(folder)) return [];
  const tree = ts.createSourceFile(file.path, file.text, ts.ScriptTarget.ES2022, true);
  const types = new Set(
    tree.statements.flatMap((each) =>
      ts.isImportDeclaration(each) && each.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword
        ? [(each.moduleSpecifier as ts.StringLiteral).text]
        : [],
    ),
  );
  return importsOf(file)
    .filter((name) => !types.has(name) && !resolveFrom(file, name).startsWith(folder))
    .map((name) => `${file.path}: imports ${name}; an oracle imports values of oracles alone`);
}

/** Uses of Node in folders that must also run in a browser. */
export function nodeViolations(file: SourceFile, exceptions: readonly Exception[]): string[] {
  if (within(file.path, NODE_FOLDERS) || isExcepted(file.path, "node", exceptions)) return [];
  const found = importsOf(file)
    .filter((specifier) => specifier.startsWith("node:"))
    .map((specifier) => `${file.path}: imports ${specifier} outside ${NODE_FOLDERS.join(", ")}`);
  visit(file, /\b(process|Buffer|NodeJS)\b/, (node, where) => {
    const isObject =
      (ts.isPropertyAccessExpression(node) && ts.isIdentifier(node.expression)) ||
      ts.isQualifiedName(node);
    if (!isObject) return;
    const name = ts.isQualifiedName(node) ? node.left.getText() : node.expression.getText();
    if (["process", "Buffer", "NodeJS"].includes(name)) {
      found.push(`${where()}: uses Node's ${name} outside ${NODE_FOLDERS.join(", ")}`);
    }
  });
  return found;
}

/** The file that reads the variables of launchers, and the folder that sets those of its own launcher. */
const LAUNCHER_HOMES = ["src/api/world/launchers.ts", "src/cli/launch/"];

/** Variables by which a launcher describes a process. RANK alone is a placeholder in help texts too. */
const LAUNCHER_VARIABLES = [
  "TWINCCL_(RANK|SIZE|LOCAL_RANK|LOCAL_SIZE|JOB_ID|STORE|ADDRESS|PORT|SECRET|RENDEZVOUS_FILE)",
  "WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT",
  "(OMPI|PMIX|SLURM|TORCHELASTIC)_\\w+",
].join("|");
const LAUNCHER_VARIABLE = new RegExp(`^(${LAUNCHER_VARIABLES})$`);

/** Names of launchers' variables outside of the file that reads them; texts that mention one are free to. */
export function launcherVariables(file: SourceFile): string[] {
  if (within(file.path, LAUNCHER_HOMES)) return [];
  const found: string[] = [];
  visit(file, new RegExp(LAUNCHER_VARIABLES), (node, where) => {
    const isName = ts.isIdentifier(node) || ts.isStringLiteralLike(node);
    if (!isName || !LAUNCHER_VARIABLE.test(node.text)) return;
    found.push(`${where()}: ${node.text}; ${LAUNCHER_HOMES[0]} reads the variables of launchers`);
  });
  return found;
}

/** Clocks, timers and random numbers where results must depend on arguments only. */
export function impureCalls(file: SourceFile, exceptions: readonly Exception[]): string[] {
  if (!within(file.path, PURE_FOLDERS)) return [];
  const found: string[] = [];
  visit(file, BANNED_WORD, (node, where) => {
    const name = impureName(node);
    const banned = name === undefined ? undefined : BANNED[name];
    if (banned === undefined || isExcepted(file.path, banned.rule, exceptions)) return;
    found.push(`${where()}: ${name} (${banned.rule}); ${banned.instead}`);
  });
  return found;
}

function impureName(node: ts.Node): string | undefined {
  if (ts.isNewExpression(node)) return `new ${node.expression.getText()}`;
  if (ts.isPropertyAccessExpression(node)) {
    return node.getText().replace("?.", ".").replace("globalThis.", "");
  }
  // A bare name: called or handed on, but not the name of a property.
  const { parent } = node;
  if (!ts.isIdentifier(node) || ts.isPropertyAccessExpression(parent)) return undefined;
  const isOwnName = "name" in parent && parent.name === node;
  return isOwnName || node.text.includes(".") ? undefined : node.text;
}

/** Files with more lines of code than one idea needs; blank lines and comments do not count. */
export function tooLong(file: SourceFile, limit = 600): string[] {
  if (file.text.split("\n").length <= limit) return [];
  const source = treeOf(file);
  const lines = new Set<number>();
  const visit = (node: ts.Node): void => {
    if (node.getChildCount(source) === 0 && node.getEnd() > node.getStart(source)) {
      const first = source.getLineAndCharacterOfPosition(node.getStart(source)).line;
      const last = source.getLineAndCharacterOfPosition(node.getEnd()).line;
      for (let line = first; line <= last; line++) lines.add(line);
    }
    for (const child of node.getChildren(source)) {
      if (!ts.isJSDoc(child)) visit(child);
    }
  };
  visit(source);
  if (lines.size <= limit || file.path.includes("/sys/")) return [];
  return [`${file.path}: ${lines.size} lines of code; split it, the limit is ${limit}`];
}

/** Notes to self: do it, or write why it is not done. */
export function unfinished(file: SourceFile): string[] {
  return file.text
    .split("\n")
    .flatMap((line, at) =>
      /\b(TODO|FIXME)\b/.test(line) ? [`${file.path}:${at + 1}: ${line.trim()}`] : [],
    );
}

/** Files of fewer lines than this, with a single importer, belong into their importer. */
const fewLines = 40;

/** Files that are a part of their only importer. Each algorithm is a file; an index is a list. */
export function crumbs(
  files: readonly SourceFile[],
  exceptions: readonly Exception[],
  limit = fewLines,
): string[] {
  const importers = new Map<string, number>();
  for (const file of files) {
    for (const specifier of new Set(importsOf(file))) {
      if (!specifier.startsWith(".")) continue;
      const target = posix.normalize(posix.join(posix.dirname(file.path), specifier));
      importers.set(target, (importers.get(target) ?? 0) + 1);
    }
  }
  return files.flatMap(({ path, text }) => {
    const lines = text.trimEnd().split("\n").length;
    const isList = path.endsWith("/index.ts") || path.endsWith(".d.ts");
    const isExcepted = exceptions.some(
      (each) => each.rule === "crumb" && path.startsWith(each.path),
    );
    if (lines >= limit || isList || isExcepted || importers.get(path) !== 1) return [];
    return [
      `${path}: ${lines} lines for one importer; move them there, or write why they stand alone`,
    ];
  });
}

/** Words that make a person of a part of a program. */
const PERSONS = /\b(who|whom|whose|told|tells|asked|nobody|somebody|whoever|anew)\b/gi;

/** A docstring that begins with a question word. */
const QUESTION = /^\/\*\*[\s*]*(What|Whether|How|Which|Who|Whose)\b/;

/** A title that begins with a question word. */
const QUESTION_WORD = /^(what|whether|how|which|who|whose|whom)\b/i;

/** Words of a title that leave its subject or its effect to a guess: "is no chunk", "goes on", "those that are none". */
const RIDDLE = new RegExp(
  [
    /(?<!\bthere )\b(is|are) no\b(?! longer\b)/,
    /\b(is|are) none\b/,
    /\b(go|goes|went) on\b/,
    /\b(give|gives|given|gave) (up|back)\b/,
    /\b(hand|hands|handed) over\b/,
    /\bas (it|they) (was|were)\b/,
    /\b(in vain|made again)\b/,
  ]
    .map(({ source }) => source)
    .join("|"),
);

/** A literal with such words, be it a title or not: files without one are not parsed. */
const SUSPECT = new RegExp(
  `["'\`](${QUESTION_WORD.source.slice(1)}|[^"'\`\\n]*(${PERSONS.source}|${RIDDLE.source}))`,
  "i",
);

/** The words alone, which a look at each quote takes far longer to find. */
const SUSPECT_WORD = new RegExp(
  `["'\`]${QUESTION_WORD.source.slice(1)}|${PERSONS.source}|${RIDDLE.source}`,
  "i",
);

function commentsOf({ text }: SourceFile): string[] {
  return text.match(/\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*$/gm) ?? [];
}

/** The folder that a file is counted in: a layer, a backend, or a folder beside `src`. */
function layerOf({ path }: SourceFile): string {
  return /^(src\/(backends\/)?[^/]+|(?!src\/)[^/]+)\//.exec(path)?.[0] ?? "src/";
}

/** Folders with more personifications in their comments than that number in a thousand words. */
export function personified(files: readonly SourceFile[], maxInThousand = 1): string[] {
  const counts = new Map<string, { words: number; persons: number }>();
  for (const file of files) {
    const count = counts.get(layerOf(file)) ?? { words: 0, persons: 0 };
    const comments = commentsOf(file).join(" ");
    count.words += comments.match(/[A-Za-z']+/g)?.length ?? 0;
    count.persons += comments.match(PERSONS)?.length ?? 0;
    counts.set(layerOf(file), count);
  }
  return [...counts].flatMap(([folder, { words, persons }]) => {
    const inThousand = (1000 * persons) / words;
    if (inThousand <= maxInThousand) return [];
    return [`${folder}: ${inThousand.toFixed(1)} personifications in 1,000 words of comments`];
  });
}

/** Docstrings that begin with a question word in place of a noun or a verb. */
export function questions(file: SourceFile): string[] {
  return commentsOf(file)
    .filter((comment) => QUESTION.test(comment))
    .map((comment) => `${file.path}: ${comment.split("\n")[0]}`);
}

/** Literal titles of tests and groups that name a person, begin as a question or read as a riddle. */
export function wrongTitles(file: SourceFile): string[] {
  const { path, text } = file;
  const suspects = text.split("\n").filter((line) => SUSPECT_WORD.test(line));
  if (!suspects.some((line) => SUSPECT.test(line))) return [];
  const titles: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && ["test", "describe"].includes(rootOf(node.expression))) {
      const [title] = node.arguments;
      if (title !== undefined && (ts.isStringLiteralLike(title) || ts.isTemplateExpression(title)))
        titles.push(title.getText().slice(1, -1));
    }
    ts.forEachChild(node, visit);
  };
  visit(treeOf(file));
  return titles
    .filter((title) => [PERSONS, QUESTION_WORD, RIDDLE].some((wrong) => title.search(wrong) >= 0))
    .map((title) => `${path}: ${title}`);
}

/** Tests that are skipped under a condition, and no title has the reason: `skipIf(reason !== "")` belongs to one with `${reason}`. */
export function silentSkips({ path, text }: SourceFile): string[] {
  return [...text.matchAll(/\.(?:skipIf|runIf)\((?:(\w+) !== "")?/g)]
    .filter(([, reason]) => reason === undefined || !text.includes(`\${${reason}}`))
    .map(([call]) => `${path}: ${call}`);
}

/** The name that a call begins with: `test` of `test.each(rows)(…)`. */
function rootOf(node: ts.Expression): string {
  if (ts.isIdentifier(node)) return node.text;
  if (ts.isPropertyAccessExpression(node) || ts.isCallExpression(node))
    return rootOf(node.expression);
  return ts.isTaggedTemplateExpression(node) ? rootOf(node.tag) : "";
}

/** Files that no entry reaches, and imports of files that do not exist. */
export function deadFiles(files: readonly SourceFile[], entries: readonly string[]): string[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const reached = new Set<string>();
  const found: string[] = [];
  const queue = [...entries];
  for (let path = queue.pop(); path !== undefined; path = queue.pop()) {
    if (reached.has(path)) continue;
    reached.add(path);
    const file = byPath.get(path);
    if (file === undefined) found.push(`${path}: does not exist, but an entry or import names it`);
    else {
      const relative = importsOf(file).filter((specifier) => specifier.startsWith("."));
      queue.push(...relative.map((specifier) => sourceOf(resolveFrom(file, specifier))));
    }
  }
  const dead = files.filter((file) => !reached.has(file.path));
  return [...found, ...dead.map((file) => `${file.path}: no entry reaches it`)];
}

/** Files that import each other, types included: one line for each cycle found. */
export function importCycles(files: readonly SourceFile[]): string[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const finished = new Set<string>();
  const found: string[] = [];
  const follow = (file: SourceFile, trail: readonly string[]): void => {
    const at = trail.indexOf(file.path);
    if (at >= 0) found.push([...trail.slice(at), file.path].join(" -> "));
    if (at >= 0 || finished.has(file.path)) return;
    for (const specifier of importsOf(file)) {
      const next = specifier.startsWith(".") && byPath.get(resolveFrom(file, specifier));
      if (next) follow(next, [...trail, file.path]);
    }
    finished.add(file.path);
  };
  for (const file of files) follow(file, []);
  return found;
}

/** A file that the build makes is known by its declaration. */
function sourceOf(path: string): string {
  return path.replace(/\.js$/, ".d.ts");
}

/** Sees the nodes of a file with such a word; others are not parsed, which takes most of the time of a rule. */
function visit(
  file: SourceFile,
  word: RegExp,
  see: (node: ts.Node, where: () => string) => void,
): void {
  if (!word.test(file.text)) return;
  const tree = treeOf(file);
  const walk = (node: ts.Node): void => {
    see(node, () => {
      const { line } = tree.getLineAndCharacterOfPosition(node.getStart(tree));
      return `${file.path}:${line + 1}`;
    });
    ts.forEachChild(node, walk);
  };
  walk(tree);
}
