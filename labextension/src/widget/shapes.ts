/** One shape a status, in a box of 14 × 14; the same as in the saved picture. Colour comes on top, never alone. */
import { attr, s } from './dom';

const PATHS: Record<string, [string, string]> = {
  completed: ['M1.5 7.5l4 4 7-8.5', 'line'],
  failed: ['M2.5 2.5l9 9M11.5 2.5l-9 9', 'line'],
  waiting: ['M7 0l6 7-6 7-6-7z', 'full'],
  running: ['M12 7A5 5 0 1 1 2 7a5 5 0 0 1 10 0M9 7a2 2 0 1 1-4 0 2 2 0 0 1 4 0', 'line'],
  retrying: ['M11.8 5.2A5 5 0 1 0 12 8M12 2v3.4H8.6', 'line'],
  cancelled: ['M2.5 7h9', 'line'],
  pending: ['M11 7a4 4 0 1 1-8 0 4 4 0 0 1 8 0', 'thin'],
  warn: ['M7 1.5L13.2 12.5H.8zM7 5.5v3.5M7 10.8v.4', 'line']
};

/** What a run's tone looks like. */
export const TONE: Record<string, string> = {
  run: 'running',
  wait: 'waiting',
  ok: 'completed',
  bad: 'failed',
  warn: 'warn',
  quiet: 'cancelled'
};

export function shapePath(status: string): SVGPathElement {
  const path = s('path');
  setShape(path, status);
  return path;
}

export function setShape(path: SVGPathElement, status: string): void {
  const [d, kind] = PATHS[status] ?? PATHS['pending']!;
  attr(path, 'd', d);
  attr(path, 'class', `wf-shape wf-${kind}`);
}

/** A shape by itself, for text. */
export function shape(status: string): SVGSVGElement {
  return s('svg', { class: 'wf-icon', width: 12, height: 12, viewBox: '0 0 14 14', 'aria-hidden': 'true' }, shapePath(status));
}
