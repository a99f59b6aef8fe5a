/** What the screen knows: the newest snapshot from Python, and what only this view knows. A pure reducer. */
import type { DetailShot, FoundShot, Snapshot, TimesShot } from '../generated/views';

export type Tab = 'graph' | 'table' | 'time' | 'log';

/** A request on its way or answered. `target` is the question's node and generation, or the button's action. */
export interface Sent {
  target: string;
  done: boolean;
  ok: boolean;
  text: string;
}

export interface State {
  snap: Snapshot;
  /** Seconds to add to this browser's clock to get the kernel's. */
  skew: number;
  tab: Tab;
  open: string | null;
  detail: DetailShot | null;
  log: DetailShot | null;
  times: TimesShot | null;
  /** What is looked for; empty when nothing is. */
  sought: string;
  found: FoundShot | null;
  sent: Record<string, Sent>;
  gone: boolean;
}

export type Event =
  | { type: 'snapshot'; snap: Snapshot; at: number }
  | { type: 'sent'; request: string; target: string }
  | { type: 'ack'; request: string; ok: boolean; text: string }
  | { type: 'detail'; detail: DetailShot }
  | { type: 'times'; times: TimesShot }
  | { type: 'seek'; text: string }
  | { type: 'found'; found: FoundShot }
  | { type: 'open'; node: string | null }
  | { type: 'tab'; tab: Tab }
  | { type: 'gone'; gone: boolean };

export function initial(snap: Snapshot, at: number): State {
  return {
    snap,
    skew: snap.now - at,
    tab: 'graph',
    open: null,
    detail: null,
    log: null,
    times: null,
    sought: '',
    found: null,
    sent: {},
    gone: false
  };
}

export function reduce(state: State, event: Event): State {
  switch (event.type) {
    case 'snapshot': {
      if (event.snap.revision < state.snap.revision) {
        return state; // a snapshot that was overtaken
      }
      const open = state.open !== null && exists(event.snap, state.open) ? state.open : keep(state);
      return { ...state, snap: event.snap, skew: event.snap.now - event.at, sent: prune(state.sent, event.snap), open };
    }
    case 'sent':
      return { ...state, sent: { ...state.sent, [event.request]: { target: event.target, done: false, ok: true, text: '' } } };
    case 'ack': {
      const sent = state.sent[event.request];
      if (!sent) {
        return state;
      }
      return { ...state, sent: { ...state.sent, [event.request]: { ...sent, done: true, ok: event.ok, text: event.text } } };
    }
    case 'detail':
      if (event.detail.node === '') {
        return { ...state, log: event.detail };
      }
      return event.detail.node === state.open ? { ...state, detail: event.detail } : state;
    case 'times':
      return { ...state, times: event.times };
    case 'seek':
      return { ...state, sought: event.text, found: event.text ? state.found : null };
    case 'found':
      return event.found.text === state.sought ? { ...state, found: event.found } : state; // else it was overtaken
    case 'open':
      return event.node === state.open ? state : { ...state, open: event.node, detail: null };
    case 'tab':
      return { ...state, tab: event.tab };
    case 'gone':
      return { ...state, gone: event.gone };
  }
}

/** The newest request for a target. */
export function sentFor(state: State, target: string): Sent | undefined {
  return Object.values(state.sent)
    .filter(sent => sent.target === target)
    .pop();
}

export function questionTarget(node: string, generation: number): string {
  return `answer ${node} ${generation}`;
}

function exists(snap: Snapshot, id: string): boolean {
  return snap.graph.boxes.some(box => box.id === id);
}

/** A member of a stack has no box of its own; its panel stays while its detail is shown. */
function keep(state: State): string | null {
  return state.open !== null && !state.open.startsWith('stack:') ? state.open : null;
}

/** Forget requests whose question is gone, and refused buttons once the run has moved on. */
function prune(sent: Record<string, Sent>, snap: Snapshot): Record<string, Sent> {
  const open = new Set(snap.questions.map(q => questionTarget(q.node, q.generation)));
  const actions = new Set<string>(snap.buttons.map(b => b.action));
  const kept = Object.entries(sent).filter(([, s]) => open.has(s.target) || actions.has(s.target));
  return kept.length === Object.keys(sent).length ? sent : Object.fromEntries(kept);
}
