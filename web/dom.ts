/** Finding and making elements. */

/** The element with an id of index.html, checked for its class. */
export function byId<T extends Element>(id: string, type: new () => T): T {
  const found = document.getElementById(id);
  if (found instanceof type) return found;
  throw new Error(`index.html has no ${type.name} "${id}"`);
}

type Attributes = Readonly<Record<string, string | number | undefined>>;

/** A new element of HTML. */
export function html<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: readonly (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

/** A new element of SVG. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: readonly (Node | string)[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, attributes, children);
  return element;
}

function fill(
  element: Element,
  attributes: Attributes,
  children: readonly (Node | string)[],
): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(name, `${value}`);
  }
  element.append(...children);
}

/** A canvas as sharp as the screen; its context counts in CSS pixels. */
export function sharpContext(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
): CanvasRenderingContext2D {
  const scale = Math.min(3, globalThis.devicePixelRatio || 1);
  const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  if (context === null) throw new Error("this browser has no 2D canvas");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
