// Errors of predicted times, in tables.

/** Errors below this do not count as smaller ones: a geometric mean would be 0. */
const leastError = 0.001;

/** Errors of residuals in per cent. */
export function errorsOf(residuals) {
  const errors = residuals.map(({ measurement, modelUs }) =>
    Math.abs(modelUs / measurement.us - 1),
  );
  const count = errors.length;
  const sum = errors.reduce((total, error) => total + error, 0);
  const logs = errors.reduce((total, error) => total + Math.log(Math.max(error, leastError)), 0);
  return {
    count,
    mean: (100 * sum) / count,
    geometric: 100 * Math.exp(logs / count),
    worst: 100 * Math.max(...errors),
  };
}

/** "2.3 / 12 (14)": geometric mean, worst, number of calls. */
export function errorText(residuals) {
  if (residuals.length === 0) return "";
  const { geometric, worst, count } = errorsOf(residuals);
  return `${geometric.toFixed(1)} / ${worst.toFixed(0)} (${count})`;
}

/** A table in Markdown; the first column is text. */
export function markdownTable(head, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |\n`;
  const rule = head.map((_, i) => (i === 0 ? "---" : "--:"));
  return [head, rule, ...rows].map(line).join("");
}
