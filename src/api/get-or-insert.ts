/** A map, weak or not. */
interface Table<K, V> {
  get(key: K): V | undefined;
  set(key: K, value: V): unknown;
}

/** The value of a key; where there is none it is made and stored, as by `getOrInsertComputed` of newer runtimes. */
export function getOrInsert<K, V>(table: Table<K, V>, key: K, make: () => V): V {
  const known = table.get(key);
  if (known !== undefined) return known;
  const made = make();
  table.set(key, made);
  return made;
}
