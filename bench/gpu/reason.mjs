// Why a process failed, out of what it wrote to standard error.

/** The last line that begins with an error's name, as Node and Python write it; else the last line. */
export function reasonIn(text) {
  const lines = text
    .trim()
    .split("\n")
    .map((line) => line.trim());
  const named = lines.findLast((line) => /^[\w.]*(Error|Exception|error)\b/.test(line));
  return (named ?? lines.at(-1) ?? "").slice(0, 300);
}
