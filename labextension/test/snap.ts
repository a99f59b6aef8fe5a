/** A snapshot to start from. */
import type { BoxShot, Snapshot } from '../src/generated/views';

export function box(id: string, more: Partial<BoxShot> = {}): BoxShot {
  return {
    id, label: id, title: id, kind: 'step', status: 'completed', x: 0, y: 0, w: 128, h: 44, note: '', since: null,
    until: null, count: 1, progress: null, attempts: 1, durationS: 0.1, fromJournal: false, failed: 0, ...more
  }; // prettier-ignore
}

export function snap(more: Partial<Snapshot> = {}): Snapshot {
  return {
    revision: 5, run: 'k3v9t2m4x7qa', workflow: 'clean', status: 'running', words: 'running', tone: 'run', atRest: false,
    ended: false, counts: { total: 2, done: 1, failed: 0, fromJournal: 0 }, nodes: 2, now: 1000, activeS: 0,
    activeSince: 990, startedAt: 990,
    graph: { hash: 'a', width: 300, height: 72, boxes: [box('a'), box('b', { x: 164 })], edges: [{ a: 0, b: 1, path: '' }] },
    questions: [], failure: null, notice: '', report: '', result: '', logLines: 0, serial: 1, spent: '',
    buttons: [{ action: 'stop', label: 'Stop', primary: false }], ...more
  }; // prettier-ignore
}

export function question(node: string, generation = 1): Snapshot['questions'][number] {
  return {
    node, prompt: 'go', generation, kind: 'confirm', message: 'Go?', options: [], initial: null, schema: {}, shown: [],
    hint: '%loom answer go yes', error: '', deadline: null, defaultWords: ''
  }; // prettier-ignore
}
