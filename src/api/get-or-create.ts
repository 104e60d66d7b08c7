/** The value of a map's key, which is made and kept where there is none. */
export function getOrCreate<K, V>(
  map: { get(key: K): V | undefined; set(key: K, value: V): unknown },
  key: K,
  create: (key: K) => V,
): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const created = create(key);
  map.set(key, created);
  return created;
}
