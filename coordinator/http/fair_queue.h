// A queue with start-time fair queuing between clients (Goyal, Vin and Cheng, 1996). Each client
// has a first-come-first-served line and a virtual time that grows by cost / weight with each
// service. The client with the least virtual time is next. So a client that begins to wait is
// served after at most one job of each other client, however many jobs they have waiting. Jobs with
// a lower value of priority go before all others, but for base/outranked_share.h. Used by the
// dispatcher and by parse_pool. Deterministic, no clock; thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/outranked_share.h"

namespace coppice::coordinator {

struct Client {
  std::string name;   // name of the client's key, or its address if it has none
  double weight = 1;  // its share against other clients
};

template <typename Job>
class FairQueue {
 public:
  struct Entry {
    uint64_t id = 0;
    std::string client;
    double cost = 0;  // cost of what remains to be served
    int priority = 0;
    Job job;
  };

  // Returns the id of the entry, which is not 0. A client that waited for nothing begins at the
  // virtual time of what was served last, unless its own is later.
  uint64_t Push(const Client& client, double cost, Job job, int priority = 0) {
    Line& line = LineOf(client);
    const uint64_t id = next_id_++;
    auto place = line.entries.end();
    while (place != line.entries.begin() && std::prev(place)->priority > priority) --place;
    const auto entry =
        line.entries.insert(place, {id, client.name, cost, priority, std::move(job)});
    places_[id] = {&line, entry, /*first=*/false};
    ranks_[priority].insert(id);
    return id;
  }
  // Puts the entry before all others, also those of other clients. The last such entry is first.
  uint64_t PushFirst(const Client& client, double cost, Job job) {
    const uint64_t id = Push(client, cost, std::move(job));
    Place& place = places_[id];
    first_.splice(first_.begin(), place.line->entries, place.entry);
    place.first = true;
    Unrank(*place.entry);
    ++place.line->first;
    return id;
  }
  // The next entries in the order of the turns: all that were pushed first, one that the others owe
  // a turn, then the first of each client. Pointers are valid until an entry is pushed or removed.
  std::vector<const Entry*> Heads() const {
    std::vector<std::tuple<int, double, uint64_t, const Entry*>> order;
    for (const auto& [name, line] : lines_) {
      if (line.entries.empty()) continue;
      const Entry& head = line.entries.front();
      order.emplace_back(head.priority, line.time, head.id, &head);
    }
    std::sort(order.begin(), order.end());
    std::vector<const Entry*> heads;
    for (const Entry& entry : first_) heads.push_back(&entry);
    const Entry* const outranked = FirstOutranked();
    const bool due = outranked != nullptr && outranked_.Due();
    if (due) heads.push_back(outranked);
    for (const auto& [priority, time, id, head] : order) {
      if (!due || head != outranked) heads.push_back(head);
    }
    return heads;
  }
  // This part of the entry's cost is served. The entry stays until it is removed.
  void Serve(uint64_t id, double cost) {
    const Place& place = places_.at(id);
    if (!place.first) {
      now_ = std::max(now_, place.line->time);
      CountOutranked(*place.entry, cost);
    }
    place.line->time += cost / place.line->weight;
    place.entry->cost = std::max(0.0, place.entry->cost - cost);
    ForgetIdle();
  }
  // The client is not compensated for the turns that it has missed.
  void ForgoTurns(uint64_t id) {
    Line& line = *places_.at(id).line;
    line.time = std::max(line.time, now_);
  }
  // Sets the cost of the entry, which has become known or has grown.
  void SetCost(uint64_t id, double cost) { places_.at(id).entry->cost = cost; }
  // Takes the entry out. Nothing is charged for it.
  Job Remove(uint64_t id) {
    const Place place = places_.at(id);
    places_.erase(id);
    Job job = std::move(place.entry->job);
    if (!place.first) Unrank(*place.entry);
    (place.first ? first_ : place.line->entries).erase(place.entry);
    if (place.first) --place.line->first;
    ForgetIdle();
    return job;
  }

  size_t size() const { return places_.size(); }
  bool empty() const { return places_.empty(); }
  bool Contains(uint64_t id) const { return places_.count(id) > 0; }
  size_t SizeOf(const std::string& client) const {
    const auto it = lines_.find(client);
    return it == lines_.end() ? 0 : it->second.size();
  }
  // The cost that is served before the entry or, for 0, before an entry of this priority that the
  // client would push now. Slightly less: of a service in progress only the part that must come
  // first counts.
  double Ahead(const Client& client, uint64_t id = 0, int priority = 0) const {
    double ahead = 0, own = 0;
    for (const Entry& entry : first_) {
      if (entry.id == id) return ahead;
      ahead += entry.cost;
    }
    if (id != 0) priority = places_.at(id).entry->priority;
    double start = now_;
    if (const auto it = lines_.find(client.name); it != lines_.end()) {
      for (const Entry& entry : it->second.entries) {
        if (entry.id == id || entry.priority > priority) break;
        own += entry.cost;
      }
      start = (it->second.size() == 0 ? std::max(now_, it->second.time) : it->second.time) +
              own / it->second.weight;
    }
    for (const auto& [name, line] : lines_) {
      if (name == client.name) continue;
      double better = 0, equal = 0;
      for (const Entry& entry : line.entries) {
        if (entry.priority < priority) better += entry.cost;
        if (entry.priority == priority) equal += entry.cost;
      }
      ahead += better + std::clamp((start - line.time) * line.weight, 0.0, equal);
    }
    return ahead + own;
  }
  // f(client, weight, number of entries) for each client that waits.
  template <typename F>
  void ForEachClient(const F& f) const {
    for (const auto& [name, line] : lines_) {
      if (line.size() > 0) f(name, line.weight, line.size());
    }
  }
  // f(entry) for each; of one client the oldest first.
  template <typename F>
  void ForEach(const F& f) const {
    for (const Entry& entry : first_) f(entry);
    for (const auto& [name, line] : lines_) {
      for (const Entry& entry : line.entries) f(entry);
    }
  }

 private:
  struct Line {
    double weight = 1;
    double time = 0;   // virtual time
    size_t first = 0;  // number of entries in first_
    std::list<Entry> entries;
    size_t size() const { return entries.size() + first; }
  };
  struct Place {
    Line* line;
    typename std::list<Entry>::iterator entry;
    bool first;
  };

  Line& LineOf(const Client& client) {
    Line& line = lines_[client.name];
    line.weight = client.weight > 0 ? client.weight : 1;
    if (line.size() == 0) line.time = std::max(line.time, now_);
    return line;
  }
  void Unrank(const Entry& entry) {
    const auto rank = ranks_.find(entry.priority);
    rank->second.erase(entry.id);
    if (rank->second.empty()) ranks_.erase(rank);
    if (ranks_.size() < 2) outranked_.Reset();
  }
  // Of the entries that others outrank, the one that came first; nullptr: none.
  const Entry* FirstOutranked() const {
    uint64_t first = 0;
    for (const auto& [priority, ids] : ranks_) {
      if (priority != ranks_.begin()->first && (first == 0 || *ids.begin() < first))
        first = *ids.begin();
    }
    return first == 0 ? nullptr : &*places_.at(first).entry;
  }
  void CountOutranked(const Entry& served, double cost) {
    const Entry* const outranked = FirstOutranked();
    if (outranked == nullptr) return;
    if (served.priority != ranks_.begin()->first) {
      outranked_.Paid(cost);
    } else if (outranked->id < served.id) {
      outranked_.Passed(cost);
    }
  }
  // Forgets idle clients whose virtual time has passed; all of them if no client waits.
  void ForgetIdle() {
    if (places_.empty()) {
      for (const auto& [name, line] : lines_) now_ = std::max(now_, line.time);
    }
    for (auto it = lines_.begin(); it != lines_.end();)
      it = it->second.size() == 0 && it->second.time <= now_ ? lines_.erase(it) : std::next(it);
  }

  std::map<std::string, Line> lines_;
  std::list<Entry> first_;
  std::unordered_map<uint64_t, Place> places_;  // by entry id
  std::map<int, std::set<uint64_t>> ranks_;     // by priority, entries that are not in first_
  OutrankedShare outranked_;
  double now_ = 0;  // virtual time
  uint64_t next_id_ = 1;
};

}  // namespace coppice::coordinator
