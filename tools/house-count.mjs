// The size of the source by folder: files, lines of code, of comments and blank ones, the median file, and files below 40 lines.
// npm run -s house-count
import { readdirSync, readFileSync } from "node:fs";
import { options } from "./options.mjs";

options({ name: "house-count", about: "Counts files and lines of src by folder.", options: {} });

/** The layer, or the backend, that a file belongs to. */
const folderOf = (path) => /^src\/(backends\/)?[^/]+/.exec(path)[0];

/** Lines of one file by kind. A line with code and a comment is code. */
function linesOf(text) {
  const lines = text.trimEnd().split("\n");
  let isInside = false;
  const counts = { code: 0, comment: 0, blank: 0 };
  for (const line of lines.map((each) => each.trim())) {
    if (!isInside && line.startsWith("/*")) isInside = true;
    if (line === "") counts.blank++;
    else if (isInside || line.startsWith("//")) counts.comment++;
    else counts.code++;
    if (isInside && line.endsWith("*/")) isInside = false;
  }
  return { ...counts, lines: lines.length };
}

const folders = new Map([["src", []]]);
for (const name of readdirSync("src", { recursive: true })) {
  const path = `src/${name.replaceAll("\\", "/")}`;
  if (!path.endsWith(".ts")) continue;
  const counts = linesOf(readFileSync(path, "utf8"));
  const folder = folderOf(path);
  folders.set(folder, [...(folders.get(folder) ?? []), counts]);
  folders.get("src").push(counts);
}
const columns = ["files", "lines", "code", "comment", "blank", "median", "< 40"];
console.log(["folder".padEnd(18), ...columns.map((name) => name.padStart(8))].join(""));
for (const [folder, files] of [...folders].sort(([a], [b]) => (a < b ? -1 : 1))) {
  const sum = (kind) => files.reduce((total, counts) => total + counts[kind], 0);
  const sorted = files.map(({ lines }) => lines).sort((a, b) => a - b);
  const row = [
    files.length,
    ...["lines", "code", "comment", "blank"].map(sum),
    sorted[sorted.length >> 1],
    sorted.filter((lines) => lines < 40).length,
  ];
  console.log([folder.padEnd(18), ...row.map((number) => String(number).padStart(8))].join(""));
}
