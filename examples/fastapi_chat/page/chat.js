// What was said is kept in the tab. An answer that is still to come is a task: submitting it again after a
// reload names the same task, and following it tells its whole stream again.

import { Tidegate, TidegateError } from "/tidegate/api/v1/tidegate.js";

const queue = new Tidegate();
const PLACE = "chat";
const KEPT = "chat turns";

const [turnsHere, welcome, form, question, send, stop, fresh] = [
  "turns", "welcome", "ask", "question", "send", "stop", "new",
].map((id) => document.getElementById(id));

let turns = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");

function keep() {
  sessionStorage.setItem(KEPT, JSON.stringify(turns));
}

/** Show one turn; return how to change it. */
function shown(role, content = "") {
  const article = document.getElementById("turn").content.cloneNode(true).firstElementChild;
  const [text, state] = article.querySelectorAll("p");
  article.className = role;
  article.querySelector("h3").textContent = role === "user" ? "You" : "Notes";
  text.textContent = content;
  turnsHere.append(article);
  scrollTo(0, document.body.scrollHeight);
  return {
    say(words) {
      const isAtEnd = innerHeight + scrollY > document.body.scrollHeight - 80;
      text.textContent = words;
      if (isAtEnd) scrollTo(0, document.body.scrollHeight);
    },
    tell(words) {
      state.firstElementChild.textContent = words;
      state.hidden = !words;
    },
    is(name, truth = true) {
      article.classList.toggle(name, truth);
    },
    offerAgain() {
      const again = article.querySelector("button");
      again.hidden = false;
      again.onclick = () => {
        article.remove();
        answer();
      };
    },
  };
}

const STATES = {
  scheduled: "Waiting…",
  held: "Waiting…",
  ready: "Waiting for a worker…",
  retrying: "Something went wrong on the way; trying again…",
  suspended: "Waiting…",
};

function stateInWords({ state, run }) {
  if (state !== "running") return STATES[state] ?? "";
  return run > 1 ? "An earlier try was lost; this one began anew." : "";
}

/** Answer the last question: as a new task, or the one that is under way. */
async function answer() {
  const turn = shown("assistant");
  const asked = turns.map(({ role, content }) => ({ role, content }));
  turn.is("live");
  setBusy(true);
  try {
    const { task_id: taskId } = await queue.submit("reply", { turns: asked }, { place: PLACE });
    stop.onclick = () => queue.cancel(taskId, { why: "the visitor stopped it" }).catch(() => {});
    let [said, run, end] = ["", 0, ""];
    for await (const event of queue.follow(taskId)) {
      if (event.type === "state") turn.tell(stateInWords(event));
      if (event.type === "reset" || (event.type === "chunk" && event.run !== run)) said = "";
      if (event.type === "chunk") [said, run] = [said + event.data, event.run];
      if (event.type === "end") end = event.state;
      turn.say(said);
    }
    finish(turn, said, end);
  } catch (error) {
    fail(turn, error instanceof TidegateError ? error.message : "The server cannot be reached.");
  } finally {
    turn.is("live", false);
    setBusy(false);
  }
}

function finish(turn, said, end) {
  if (end === "dead") return fail(turn, "No answer could be had.");
  turns.push({ role: "assistant", content: said, note: end === "cancelled" ? "Stopped." : "" });
  keep();
  turn.tell(turns.at(-1).note);
}

function fail(turn, words) {
  turn.is("failed");
  turn.tell(words);
  turn.offerAgain();
}

function setBusy(isBusy) {
  send.hidden = isBusy;
  stop.hidden = !isBusy;
  fresh.hidden = isBusy || turns.length === 0;
  welcome.hidden = turns.length > 0;
}

function ask(words) {
  turns.push({ role: "user", content: words });
  keep();
  shown("user", words);
  answer();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const words = question.value.trim();
  if (!words || send.hidden) return;
  question.value = "";
  ask(words);
});

question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});

for (const idea of document.querySelectorAll("#ideas button")) {
  idea.addEventListener("click", () => ask(idea.textContent));
}

fresh.addEventListener("click", () => {
  queue.forget(PLACE);
  turns = [];
  keep();
  turnsHere.replaceChildren(welcome);
  setBusy(false);
  question.focus();
});

for (const { role, content, note } of turns) shown(role, content).tell(note ?? "");
setBusy(false);
scrollTo(0, document.body.scrollHeight);
if (turns.at(-1)?.role === "user") answer();
