/** Parts of drawings as text: escaped words and short numbers. */

/** A number with at most six digits. */
export function svgNumber(value: number): string {
  return String(Number(value.toPrecision(6)));
}

/** Characters that XML does not allow, not even escaped: control characters and halves of pairs. */
const unfit = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;

/** Words as content of an element. */
export function svgText(text: string): string {
  const fit = text.replace(unfit, "\ufffd");
  return fit.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
