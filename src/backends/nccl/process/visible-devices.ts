/** CUDA's reading of the list in `CUDA_VISIBLE_DEVICES`. */

/**
 * The devices that a list shows, as it names them: those before the first entry that is none. Behind that one CUDA hides
 * everything. Numbers from `gpus` on are none either, where it is known how many there are.
 */
export function shownBy(list: string, gpus = 0): readonly string[] {
  const entries = list.split(",").map((entry) => entry.trim());
  const isNone = (entry: string): boolean =>
    entry === "" ||
    entry.startsWith("-") ||
    (gpus > 0 && /^\d+$/.test(entry) && Number(entry) >= gpus);
  const end = entries.findIndex(isNone);
  return end < 0 ? entries : entries.slice(0, end);
}
