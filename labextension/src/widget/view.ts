/** One view of a run: puts the parts together, feeds them the state, and lets time pass. */
import type { QuestionShot, Snapshot } from '../generated/views';
import { DetailView } from './detail';
import { h, text } from './dom';
import { count } from './format';
import { FailureView } from './failure';
import { Footer } from './footer';
import { FoundView } from './found';
import { GraphView } from './graph';
import { Header } from './header';
import { Link } from './link';
import { LogView } from './log';
import type { Action, FromPython, Model } from './model';
import { Questions } from './question';
import { initial, questionTarget, reduce, type Event, type State } from './state';
import { TableView } from './table';
import { TimelineView } from './timeline';
import css from './style.css';

const GONE = 'The kernel that ran this is gone. Finished steps are kept: run the cell again, or %loom resume, to go on.';
const REFRESH_MS = 400;

const clock = (): number => Date.now() / 1000;

export class RunView {
  #state: State | null = null;
  #hide = h('style');
  #root = h('div.live');
  #announce = h('div.sr', { role: 'status', 'aria-live': 'polite' });
  #notice = h('div.notice', { hidden: true });
  #report = h('div.report.dim', { hidden: true });
  #result = h('div.report', { hidden: true });
  #resultText = h('code');
  #gone = h('div.notice', { role: 'alert', hidden: true }, GONE);
  #header = new Header(action => this.#act(action), sought => this.#seek(sought));
  #graph = new GraphView(node => this.#open(node));
  #table = new TableView(node => this.#open(node));
  #log = new LogView();
  #time = new TimelineView(node => this.#open(node));
  #found = new FoundView(node => this.#open(node));
  #detail = new DetailView(node => this.#open(node));
  #failure = new FailureView();
  #questions = new Questions((question, value) => this.#answer(question, value));
  #footer = new Footer(
    tab => this.#dispatch({ type: 'tab', tab }),
    sought => this.#seek(sought)
  );
  #link: Link;
  #beat: ReturnType<typeof setInterval>;
  #asked = { detail: '', log: -1, times: -1, sought: '' };
  #refresh: ReturnType<typeof setTimeout> | undefined;

  constructor(model: Model, el: HTMLElement) {
    this.#result.append(h('span.dim', 'result '), this.#resultText);
    this.#root.append(
      h('style', css),
      this.#hide,
      this.#header.el,
      this.#gone,
      h('div.body',
        this.#graph.el, this.#table.el, this.#time.el, this.#log.el, this.#found.el, this.#report, this.#detail.el,
        this.#failure.el, this.#notice, this.#result, this.#questions.el, this.#footer.el, this.#announce
      )
    ); // prettier-ignore
    el.append(this.#root);
    this.#link = new Link(model, {
      snapshot: snap => this.#snapshot(snap),
      message: message => this.#message(message),
      gone: gone => this.#dispatch({ type: 'gone', gone })
    });
    this.#beat = setInterval(() => this.#tick(), 1000);
  }

  dispose(): void {
    clearInterval(this.#beat);
    clearTimeout(this.#refresh);
    this.#graph.dispose();
    this.#link.dispose();
    this.#root.remove();
  }

  #snapshot(snap: Snapshot): void {
    if (this.#state === null) {
      this.#state = initial(snap, clock());
      // The saved picture beside this view is for when this view is not there.
      this.#hide.textContent = `.wf-static[data-run="${CSS.escape(snap.run)}"]{display:none}`;
      this.#paint(null);
    } else {
      this.#dispatch({ type: 'snapshot', snap, at: clock() });
    }
  }

  #message(message: FromPython): void {
    if (message.type === 'ack') {
      this.#dispatch(message);
    } else if (message.type === 'detail') {
      this.#dispatch({ type: 'detail', detail: message });
    } else if (message.type === 'found') {
      this.#dispatch({ type: 'found', found: message });
    } else if (message.type === 'times') {
      this.#dispatch({ type: 'times', times: message });
    }
  }

  #dispatch(event: Event): void {
    const before = this.#state;
    if (before !== null) {
      this.#state = reduce(before, event);
      if (this.#state !== before) {
        this.#paint(before);
      }
    }
  }

  #act(action: Action): void {
    this.#dispatch({ type: 'sent', request: this.#link.act(action), target: action });
  }

  #answer(question: QuestionShot, value: unknown): void {
    const request = this.#link.answer(question.node, question.generation, value);
    this.#dispatch({ type: 'sent', request, target: questionTarget(question.node, question.generation) });
  }

  #seek(sought: string): void {
    this.#asked.sought = '';
    this.#dispatch({ type: 'seek', text: sought });
  }

  #open(node: string | null): void {
    const was = this.#state?.open ?? null;
    this.#asked.detail = '';
    this.#dispatch({ type: 'open', node: node === was ? null : node });
    if (this.#state?.open === null && was) {
      this.#graph.focus(was);
    }
  }

  #paint(before: State | null): void {
    const state = this.#state!;
    const { snap } = state;
    this.#root.classList.toggle('wf-gone', state.gone);
    this.#root.dataset['status'] = snap.status;
    this.#gone.hidden = !state.gone;
    this.#header.update(state);
    this.#graph.update(state);
    this.#graph.el.classList.toggle('wf-off', state.tab !== 'graph');
    this.#table.update(state);
    this.#time.update(state);
    this.#found.update(state);
    this.#detail.update(state);
    this.#failure.update(snap.failure);
    this.#questions.update(state);
    this.#footer.update(state);
    this.#show(this.#notice, snap.failure ? '' : snap.notice);
    this.#show(this.#report, snap.report);
    text(this.#resultText, snap.result);
    this.#result.hidden = !snap.result;
    this.#ask(state);
    if (state.log !== null) {
      this.#log.update(state);
    }
    this.#log.el.hidden = state.tab !== 'log';
    this.#speak(before, state);
    this.#tick();
  }

  #show(el: HTMLElement, content: string): void {
    text(el, content);
    el.hidden = content === '';
  }

  /** Ask for what a snapshot does not carry, again when it has changed, a few times a second at most. */
  #ask(state: State): void {
    if (state.tab === 'log' && this.#asked.log !== state.snap.logLines) {
      this.#later(() => {
        this.#asked.log = this.#state!.snap.logLines;
        this.#link.detail('');
      }, this.#asked.log < 0);
    }
    const { revision } = state.snap;
    if (state.tab === 'time' && this.#asked.times !== revision) {
      this.#later(() => {
        this.#asked.times = this.#state!.snap.revision;
        this.#link.times();
      }, this.#asked.times < 0);
    }
    const sought = state.sought && `${state.sought} ${revision}`;
    if (sought && this.#asked.sought !== sought) {
      this.#later(() => {
        this.#asked.sought = `${this.#state!.sought} ${this.#state!.snap.revision}`;
        this.#link.find(this.#state!.sought);
      }, this.#asked.sought === '');
    }
    if (state.open !== null) {
      const box = state.snap.graph.boxes.find(b => b.id === state.open);
      const key = JSON.stringify([state.open, box?.status, box?.note, box && state.snap.logLines]);
      if (key !== this.#asked.detail) {
        const first = this.#asked.detail === '';
        this.#later(() => {
          this.#asked.detail = key;
          if (this.#state!.open !== null) {
            this.#link.detail(this.#state!.open);
          }
        }, first);
      }
    }
  }

  #later(what: () => void, now: boolean): void {
    if (now) {
      what();
    } else {
      this.#refresh ??= setTimeout(() => {
        this.#refresh = undefined;
        what();
        this.#ask(this.#state!);
      }, REFRESH_MS);
    }
  }

  /** Screen readers hear of what needs a person, of failures and of the end, and of nothing else. */
  #speak(before: State | null, state: State): void {
    const { snap } = state;
    const opened = snap.questions.filter(q => !before?.snap.questions.some(b => b.node === q.node && b.generation === q.generation));
    if (opened.length) {
      text(this.#announce, `${snap.workflow} asks: ${opened.map(q => q.message).join('; ')}`);
    } else if (before && snap.atRest && !before.snap.atRest) {
      text(this.#announce, `${snap.workflow} ${snap.words}`);
    } else if (before && snap.counts.failed > before.snap.counts.failed) {
      text(this.#announce, `${snap.workflow}: ${count(snap.counts.failed, 'step')} failed`);
    }
  }

  #tick(): void {
    if (this.#state) {
      // Nothing is known of what a dead kernel's run did after its last snapshot.
      const now = this.#state.gone ? this.#state.snap.now : clock() + this.#state.skew;
      this.#header.tick(this.#state, now);
      this.#footer.tick(this.#state, now);
      this.#graph.tick(now);
      this.#table.tick(now);
      this.#questions.tick(now);
    }
  }
}
