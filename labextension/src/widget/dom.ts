/** Elements without a framework. Text always goes in as text, never as markup. */

const SVG = 'http://www.w3.org/2000/svg';

type Child = Node | string | null | undefined | false;
type Props = Record<string, unknown>;

function fill<E extends Element>(el: E, props: Props | Child, children: Child[]): E {
  if (!props || typeof props === 'string' || props instanceof Node) {
    children.unshift(props);
    props = {};
  }
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) {
      continue;
    }
    if (typeof value === 'function') {
      el.addEventListener(name, value as EventListener);
    } else {
      el.setAttribute(name, value === true ? '' : String(value));
    }
  }
  el.append(...children.filter((c): c is Node | string => c !== null && c !== undefined && c !== false));
  return el;
}

/**
 * An HTML element: `h('div.row', ...)` is a div of class `wf-row`. Functions among the props are listeners, the rest
 * attributes; they may be left out.
 */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K | `${K}.${string}`,
  props?: Props | Child,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const [name, ...classes] = tag.split('.');
  const el = document.createElement(name as K);
  if (name === 'button') {
    el.setAttribute('type', name); // not submit
  }
  el.classList.add(...classes.map(c => `wf-${c}`));
  return fill(el, props, children);
}

/** An SVG element. */
export function s<K extends keyof SVGElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): SVGElementTagNameMap[K] {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** Set text only where it differs: an untouched node does not make a screen reader speak or a selection vanish. */
export function text(el: Element, value: string): void {
  if (el.textContent !== value) {
    el.textContent = value;
  }
}

export function attr(el: Element, name: string, value: string | null): void {
  if (value === null) {
    el.removeAttribute(name);
  } else if (el.getAttribute(name) !== value) {
    el.setAttribute(name, value);
  }
}
