/** Parts of drawings as text: escaped words and short numbers. */

/** A number with at most six digits. */
export function svgNumber(value: number): string {
  return String(Number(value.toPrecision(6)));
}

/** Words as content of an element. */
export function svgText(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
